wake(KEYS[1], KEYS[2], ARGV[2], ARGV[3])
return 1
