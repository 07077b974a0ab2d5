"""Locks by redis-py or kazoo, as lines on standard input say: THREAD VERB NAME …; see the README.

peer.py redis-py|kazoo HOST:PORT TTL_MS
"""

import collections
import json
import queue
import sys
import threading
import time

CLIENTS_OF_WAITERS = 4
library, host, ttl = sys.argv[1], sys.argv[2], int(sys.argv[3]) / 1000
output = threading.Lock()


def say(*words):
    with output:
        print(*words, flush=True)


class Redis:
    """A connection of redis-py."""

    def __init__(self):
        import redis

        name, port = host.rsplit(":", 1)
        self.client = redis.Redis(host=name, port=int(port))

    def lock(self, name):
        # Not in the thread's own memory, so that another thread can use it.
        return self.client.lock(name, timeout=ttl, thread_local=False)

    def acquire(self, lock, limit=None):
        return lock.acquire(blocking_timeout=limit)

    def held(self, lock):
        return lock.owned()


class Kazoo:
    """A session of kazoo, with a listener, as its documentation asks of all who hold locks."""

    def __init__(self):
        from kazoo.client import KazooClient

        self.client = KazooClient(hosts=host, timeout=ttl)
        self.client.start()
        self.holding = set()
        self.client.add_listener(self.listen)

    def listen(self, state):
        if state in ("SUSPENDED", "LOST"):
            for thread in list(self.holding):
                self.holding.discard(thread)
                say(thread, "lost!")

    def lock(self, name):
        return self.client.Lock("/" + name)

    def acquire(self, lock, limit=None):
        from kazoo.exceptions import LockTimeout

        try:
            return lock.acquire(timeout=limit)
        except LockTimeout:
            return False

    def held(self, lock):
        return lock.is_acquired


connect = {"redis-py": Redis, "kazoo": Kazoo}[library]


def three_digits(nanoseconds):
    """As fine as any two runs agree, so that the reply stays short."""
    digits = len(str(nanoseconds)) - 3
    return round(nanoseconds, -digits) if digits > 0 else nanoseconds


def prepare_turns(name, shape, count, milliseconds, turns):
    contended, count, seconds, turns = shape == "contended", int(count), int(milliseconds) / 1000, int(turns)
    clients = [connect() for _ in range(count if contended else 1)]
    locks = []
    for number in range(count):
        client = clients[number % len(clients)]
        locks.append((client, client.lock(name if contended else f"{name}-{number}")))
        client.acquire(locks[-1][1])
        locks[-1][1].release()

    def all_at_once(target):
        runners = [threading.Thread(target=target, args=(number,)) for number in range(count)]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()

    def turn(number):
        client, lock = locks[number]
        client.acquire(lock)
        lock.release()

    # What a client opens only to wait is no part of a turn either.
    if contended:
        all_at_once(turn)

    def go():
        results, ready, last, left = [None] * count, threading.Barrier(count), [None], [turns]

        def run(number):
            (client, lock), waits = locks[number], collections.Counter()
            done, passed, in_time, latest = 0, 0, 0, 0.0
            ready.wait()
            started = time.monotonic()
            while left[0] > 0 and time.monotonic() - started < seconds:
                left[0] -= 1
                asked = time.monotonic_ns()
                client.acquire(lock)
                is_hand_over, last[0] = last[0] != number, number
                lock.release()
                took = time.monotonic_ns() - asked
                ended = time.monotonic() - started
                done += 1
                passed += is_hand_over
                if ended <= seconds:
                    waits[three_digits(took)] += 1
                    in_time += is_hand_over
                    latest = ended
            results[number] = {
                "waits": list(waits.items()),
                "all": done,
                "seconds": latest,
                "hand_overs": in_time,
                "all_hand_overs": passed,
            }

        all_at_once(run)
        return results

    return go


def prepare_relay(name, count, hand_overs):
    holder = connect()
    held = holder.lock(name)
    holder.acquire(held)
    clients = [connect() for _ in range(CLIENTS_OF_WAITERS)]
    waits, served, done = collections.Counter(), [0], threading.Event()
    released = [0]

    def wait(client):
        lock = client.lock(name)
        client.acquire(lock)
        took = time.monotonic_ns() - released[0]
        served[0] += 1
        if served[0] <= int(hand_overs):
            waits[three_digits(took)] += 1
        if served[0] == int(hand_overs):
            done.set()
        released[0] = time.monotonic_ns()
        lock.release()

    for number in range(int(count)):
        client = clients[number % CLIENTS_OF_WAITERS]
        threading.Thread(target=wait, args=(client,), daemon=True).start()

    def go():
        released[0] = time.monotonic_ns()
        held.release()
        done.wait()
        return list(waits.items())

    return go


def serve(thread, commands):
    client, locks, prepared = None, {}, None

    def run(verb, name=None, *rest):
        nonlocal client, prepared
        if verb == "turns":
            prepared = prepare_turns(name, *rest)
            return "ready"
        if verb == "relay":
            prepared = prepare_relay(name, *rest)
            return "ready"
        if verb == "go":
            return json.dumps(prepared(), separators=(",", ":"))
        client = client or connect()
        lock = locks.setdefault(name, client.lock(name))
        if verb in ("lock", "token"):
            client.acquire(lock)
            if hasattr(client, "holding"):
                client.holding.add(thread)
            return "locked" if verb == "lock" else "token"
        if verb == "wait":
            return "locked" if client.acquire(lock, int(rest[0]) / 1000) else "gave-up"
        if verb == "held":
            holds = thread in client.holding if hasattr(client, "holding") else True
            return "held" if holds and client.held(lock) else "lost"
        if hasattr(client, "holding"):
            client.holding.discard(thread)
        lock.release()
        return "unlocked"

    while True:
        words = commands.get()
        try:
            say(thread, run(*words))
        except Exception as error:
            say(thread, "failed", type(error).__name__, str(error).replace("\n", " "))


threads = {}
say("ready")
for line in sys.stdin:
    words = line.split()
    if words[0] not in threads:
        threads[words[0]] = queue.Queue()
        threading.Thread(target=serve, args=(words[0], threads[words[0]]), daemon=True).start()
    threads[words[0]].put(words[1:])
