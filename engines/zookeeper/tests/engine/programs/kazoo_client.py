# A client on kazoo, led by lines on its standard input: kazoo_client.py SERVERS PATH lock|read|write [PATTERN…]
#
#   acquire         waits for the lock, then replies 'acquired'
#   release         replies 'released'
#   count FILE N    N times: acquire, raise the number in the file without any protection, release; 'counted'
#   pairs MS N      N threads acquire and release locks of their own for that time; replies how often
#   write TEXT      makes the path's node, with this text as its data; replies 'written'
#   read            replies with the node's data and version
#
# The patterns are those of other clients' names that kazoo is to count as contenders.

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient

servers, path, kind, *patterns = sys.argv[1:]
client = KazooClient(hosts=servers, timeout=10)
client.start()
recipe = {"lock": client.Lock, "read": client.ReadLock, "write": client.WriteLock}[kind]
lock = recipe(path, "a kazoo client", extra_lock_patterns=patterns)


def pairs(number, end):
    own, count = recipe(f"{path}-{number}", "a kazoo client"), 0
    while time.monotonic() < end:
        with own:
            count += 1
    return count


def obey(command, *words):
    if command == "acquire":
        lock.acquire()
        return "acquired"
    if command == "release":
        lock.release()
        return "released"
    if command == "count":
        for _ in range(int(words[1])):
            with lock:
                with open(words[0]) as file:
                    number = int(file.read())
                with open(words[0], "w") as file:
                    file.write(str(number + 1))
        return "counted"
    if command == "pairs":
        end = time.monotonic() + int(words[0]) / 1000
        with ThreadPoolExecutor(int(words[1])) as threads:
            return str(sum(threads.map(lambda number: pairs(number, end), range(int(words[1])))))
    if command == "write":
        client.create(path, words[0].encode(), makepath=True)
        return "written"
    if command == "read":
        data, stat = client.get(path)
        return f"{data.decode()} version {stat.version}"
    raise ValueError(command)


for line in sys.stdin:
    print(obey(*line.split()), flush=True)
client.stop()
