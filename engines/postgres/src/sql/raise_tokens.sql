SELECT lockkeeper_raise_tokens()
