"""Raises a counter in a file under redis-py's Lock: interop.py PORT LOCK FILE TIMES."""

import sys

import redis

port, lock_name, path, times = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
client = redis.Redis(port=port)
for _ in range(times):
    with client.lock(lock_name, timeout=10, sleep=0.002):
        with open(path) as file:
            number = int(file.read())
        with open(path, "w") as file:
            file.write(str(number + 1))
