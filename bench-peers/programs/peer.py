"""Takes turns with kazoo's or redis-py's lock, as a line on standard input asks:

LIBRARY HOST:PORT LOCK spread|contended COUNT MILLISECONDS TURNS

and answers with a line of JSON: for each thread {"waits": [[nanoseconds, count], …], "all": turns, "seconds": time}.
"""

import collections
import json
import sys
import threading
import time


def three_digits(nanoseconds):
    """As fine as any two runs agree, so that the answer stays short."""
    digits = len(str(nanoseconds)) - 3
    return round(nanoseconds, -digits) if digits > 0 else nanoseconds


def redis_clients(host, count):
    import redis

    name, port = host.rsplit(":", 1)
    return [redis.Redis(host=name, port=int(port)) for _ in range(count)], lambda client: client.close()


def redis_lock(client, name):
    return client.lock(name, timeout=10)


def kazoo_clients(host, count):
    from kazoo.client import KazooClient

    clients = [KazooClient(hosts=host) for _ in range(count)]
    for client in clients:
        client.start()

    def close(client):
        client.stop()
        client.close()

    return clients, close


def kazoo_lock(client, name):
    return client.Lock("/" + name)


LIBRARIES = {"redis-py": (redis_clients, redis_lock), "kazoo": (kazoo_clients, kazoo_lock)}


def take_turns(line):
    library, host, name, shape, count, milliseconds, turns = line.split()
    count, seconds, turns = int(count), int(milliseconds) / 1000, int(turns)
    connect, make_lock = LIBRARIES[library]
    clients, close = connect(host, count if shape == "contended" else 1)
    locks = []
    for number in range(count):
        client = clients[number] if shape == "contended" else clients[0]
        locks.append(make_lock(client, name if shape == "contended" else f"{name}-{number}"))
    for lock in locks if shape == "contended" else locks[:1]:
        lock.acquire()
        lock.release()
    results = [None] * count
    ready = threading.Barrier(count)

    def run(number):
        lock, waits, done, last = locks[number], collections.Counter(), 0, 0.0
        ready.wait()
        started = time.monotonic()
        while done < turns and time.monotonic() - started < seconds:
            asked = time.monotonic_ns()
            lock.acquire()
            lock.release()
            took = time.monotonic_ns() - asked
            done += 1
            ended = time.monotonic() - started
            if ended <= seconds:
                waits[three_digits(took)] += 1
                last = ended
        results[number] = {"waits": list(waits.items()), "all": done, "seconds": last}

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        close(client)
    return results


for request in sys.stdin:
    print(json.dumps(take_turns(request)), flush=True)
