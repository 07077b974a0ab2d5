-- Passes a wake on that reached nobody: its claim had given up waiting.
wake()
return 1
