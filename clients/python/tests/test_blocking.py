"""The shared list of behaviours (docs/clients.md), for the blocking client."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, List, Optional

from lockkeeper_client import Busy, Client, Closed, Lost, Refused, Unavailable
from lockkeeper_client._clock import now
from lockkeeper_client._hold import HoldState

from .kit import BINARY, Proxy, Server, refusal, until

PACKAGE = pathlib.Path(__file__).resolve().parents[1]


class Later:
    """Runs something in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.at = 0.0

        def run() -> None:
            try:
                self.result = work()
            except Exception as error:
                self.result = error
            self.at = now()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def get(self, seconds: float = 30.0) -> Any:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "it did not end"
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Behaviours(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.kill)

    def client(self, ttl: float = 30.0, url: Optional[str] = None, **more: Any) -> Client:
        client = Client(url or self.server.url, ttl=ttl, **more)
        self.addCleanup(client.close)
        return client

    def proxy(self) -> Proxy:
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        return proxy

    def test_lock_excludes_and_a_release_hands_over(self) -> None:
        a, b = self.client(), self.client()
        with a.lock("orders/42") as hold:
            self.assertEqual(hold.state, "held")
            waiting = Later(lambda: b.lock("orders/42"))
            self.server.wait_for_claims("orders/42", 2)
        second = waiting.get()
        self.assertGreater(second.token, hold._tokens["orders/42"])
        second.release()
        self.server.wait_for_claims("orders/42", 0)

    def test_try_finds_a_held_lock_busy_at_once(self) -> None:
        a, b = self.client(holder="the first"), self.client()
        with a.lock("x"):
            self.assertIsNone(b.try_lock("x"))
            with self.assertRaises(Busy) as caught:
                b.lock("x", wait=0)
            self.assertIn("the first", caught.exception.holders[0])
        with b.lock("x", wait=0):
            pass

    def test_a_timed_wait_ends_busy_and_leaves_the_queue(self) -> None:
        a, b = self.client(), self.client()
        with a.lock("x"):
            began = time.monotonic()
            with self.assertRaises(Busy):
                b.lock("x", wait=0.5)
            self.assertGreaterEqual(time.monotonic() - began, 0.5)
            self.server.wait_for_claims("x", 1)

    def test_readers_share_and_a_downgrade_lets_them_in(self) -> None:
        a, b = self.client(), self.client()
        with a.read("x"), b.read("x", wait=0):
            self.assertIsNone(b.try_lock("x"))
        with a.lock("x", wait=0) as hold:
            with self.assertRaises(Busy):
                b.read("x", wait=0)
            hold.downgrade()
            self.assertEqual(hold.mode, "shared")
            b.read("x", wait=0).release()

    def test_permits_are_counted(self) -> None:
        a, b = self.client(), self.client()
        with a.permits("x", 2, of=3):
            with b.permits("x", of=3, wait=0), self.assertRaises(Busy):
                a.permits("x", of=3, wait=0)

    def test_several_locks_are_all_or_nothing(self) -> None:
        a, b = self.client(), self.client()
        with a.lock("y"):
            self.assertIsNone(b.try_lock("x", "y"))
            a.lock("x", wait=0).release()
        with b.lock("y", "x", wait=0) as hold:
            self.assertEqual(sorted(hold.tokens), ["x", "y"])
            with self.assertRaises(ValueError):
                hold.token

    def test_tokens_grow(self) -> None:
        clients = [self.client(), self.client()]
        tokens: List[int] = []
        for turn in range(20):
            with clients[turn % 2].lock("x") as hold:
                tokens.append(hold.token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_the_first_lock_of_the_pages_works_as_it_stands(self) -> None:
        for page in ("docs/serve.md", "docs/clients.md", "clients/python/README.md"):
            code = (PACKAGE.parents[1] / page).read_text().split("```python\n")[1].split("```")[0]
            self.assertIn("http://127.0.0.1:7670", code)
            code = code.replace("http://127.0.0.1:7670", self.server.url)
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE)
            self.assertRegex(run.stdout, r"^held with token \d+\n$", page + run.stderr)

    def test_renewal_keeps_a_hold_and_a_wait_over_many_ttls(self) -> None:
        a, b = self.client(ttl=2), self.client(ttl=2)
        with a.lock("x") as hold:
            waiting = Later(lambda: b.lock("x"))
            self.server.wait_for_claims("x", 2)
            place = self.server.claims("x")[1]["id"]
            self.assertFalse(hold.wait_lost(7))
            self.assertEqual(hold.state, "held")
            self.assertEqual(self.server.claims("x")[1]["id"], place, "the wait has kept its place")
        waiting.get().release()

    def test_a_ttl_longer_than_the_engines_loses_nothing(self) -> None:
        server = Server("--ttl", "2s")
        self.addCleanup(server.kill)
        client = Client(server.url, ttl=60)
        self.addCleanup(client.close)
        with client.lock("x") as hold:
            self.assertFalse(hold.wait_lost(6))

    def test_a_lease_ends_a_hold(self) -> None:
        a, b = self.client(), self.client()
        hold = a.lock("x", lease=0.5)
        waiting = Later(lambda: b.lock("x"))
        lost_at: List[float] = []
        hold.on_lost(lambda: lost_at.append(now()))
        waiting.get()
        self.assertTrue(hold.is_lost)
        self.assertLess(lost_at[0], waiting.at)

    def test_lost_before_regrant_when_the_server_is_paused(self) -> None:
        a, b = self.client(ttl=1), self.client()
        hold = a.lock("x")
        waiting = Later(lambda: b.lock("x"))
        self.server.wait_for_claims("x", 2)
        self.server.pause()
        try:
            self.assertTrue(hold.wait_lost(2), "the deadline comes without a word from the server")
            self.assertEqual(hold.state, "lost")
        finally:
            self.server.go_on()
        waiting.get().release()

    def test_lost_before_regrant_when_the_network_is_cut(self) -> None:
        proxy = self.proxy()
        a, b = self.client(ttl=3, url=proxy.url), self.client()
        hold = a.lock("x")
        lost_at: List[float] = []
        hold.on_lost(lambda: lost_at.append(now()))
        waiting = Later(lambda: b.lock("x"))
        self.server.wait_for_claims("x", 2)
        # Some heartbeats have come and gone: the deadline is a moved one.
        self.assertFalse(hold.wait_lost(2.5))
        proxy.freeze()
        waiting.get().release()
        self.assertLess(lost_at[0], waiting.at)
        proxy.thaw()
        self.assertTrue(hold.is_lost, "what was lost stays lost")

    def test_a_late_confirmation_revives_nothing(self) -> None:
        hold = HoldState("h", "exclusive", {"x": 1}, now())
        hold._confirm(now() + 60, uncertain=False)
        self.assertTrue(hold.is_lost)

    def test_the_deadline_counts_from_the_send(self) -> None:
        proxy = self.proxy()
        client = self.client(ttl=4, url=proxy.url)
        client.lock("first").release()
        proxy.delays, proxy.delay = b"POST /v1/holds ", 1.0
        hold = client.lock("x")
        self.assertLess(hold.valid_for, 3.0)

    def test_a_release_after_the_loss_says_so_and_the_client_goes_on(self) -> None:
        a = self.client(ttl=0.5)
        with self.assertRaises(Lost):
            with a.lock("x") as hold:
                self.server.pause()
                self.assertTrue(hold.wait_lost(5))
                with self.assertRaises(Lost):
                    hold.token
                self.server.go_on()
        with self.assertRaises(Lost):
            hold.release()
        # The same client goes on, in a new session.
        a.lock("x", wait=10).release()

    def test_an_error_of_the_block_is_not_hidden_by_the_loss(self) -> None:
        a = self.client(ttl=0.5)
        with self.assertRaises(KeyError):
            with a.lock("x") as hold:
                self.server.pause()
                self.assertTrue(hold.wait_lost(5))
                self.server.go_on()
                raise KeyError("mine")

    def test_a_retry_after_a_lost_reply_finds_the_same(self) -> None:
        proxy = self.proxy()
        client = self.client(url=proxy.url)
        proxy.loses, proxy.losses = b"POST /v1/sessions ", 1
        client.lock("first").release()
        proxy.loses, proxy.losses = b"POST /v1/holds ", 2
        hold = client.lock("x", wait=5)
        self.assertEqual([claim["token"] for claim in self.server.claims("x")], [hold.token])
        proxy.loses, proxy.losses = b"DELETE ", 1
        hold.release()
        self.assertEqual(proxy.lost, 4)
        self.server.wait_for_claims("x", 0)

    def test_a_hold_that_no_client_knows_of_is_released(self) -> None:
        proxy = self.proxy()
        a, b = self.client(ttl=1, url=proxy.url), self.client()
        a.lock("first").release()
        proxy.loses, proxy.losses = b"POST /v1/holds ", 1000
        with self.assertRaises(Unavailable):
            a.lock("x", wait=0)
        self.assertGreater(proxy.lost, 0)
        b.lock("x", wait=10).release()

    def test_a_hold_of_a_late_copy_is_released(self) -> None:
        a = self.client(ttl=1.5)
        with a.lock("mine") as hold:
            assert a._core.session is not None
            self.server.ask(a._core.session.id, "x")
            self.assertEqual(len(self.server.claims("x")), 1)
            self.server.wait_for_claims("x", 0)
            self.assertEqual(hold.state, "held", "it was not the session that ended")

    def test_a_reply_of_somebody_else_is_no_reply(self) -> None:
        proxy = self.proxy()
        a = self.client(ttl=3, url=proxy.url)
        proxy.replaces, proxy.replacements = b"POST ", 1
        a.lock("first").release()
        self.assertEqual(proxy.replaced, 1, "it has opened its session after all")
        proxy.replaces, proxy.replacements = b"POST /v1/holds ", 2
        with a.lock("x", wait=5) as hold:
            self.assertEqual([claim["token"] for claim in self.server.claims("x")], [hold.token])
            proxy.replaces, proxy.replacements = b"POST /v1/sessions/", 2
            until(lambda: proxy.replaced == 5)
            self.assertFalse(hold.wait_lost(5))
            self.assertEqual(hold.state, "held", "heartbeats go on")
            proxy.replaces, proxy.replacements = b"DELETE ", 1
        self.assertEqual(proxy.replaced, 6)
        self.server.wait_for_claims("x", 0)

    def test_a_reply_that_leaves_little_time_is_asked_for_again(self) -> None:
        server = Server("--ttl", "2s")
        self.addCleanup(server.kill)
        proxy = Proxy(server.port)
        self.addCleanup(proxy.close)
        a = self.client(url=proxy.url)
        a.lock("first").release()
        proxy.delays, proxy.delay = b"POST ", 1.2
        with a.lock("x") as hold:
            self.assertGreater(hold.valid_for, 1.0, "the short request tells more")

    def test_a_grant_that_cannot_be_looked_at_is_released(self) -> None:
        server = Server("--ttl", "2s")
        self.addCleanup(server.kill)
        proxy = Proxy(server.port)
        self.addCleanup(proxy.close)
        a = self.client(url=proxy.url)
        a.lock("first").release()
        proxy.delays, proxy.delay = b"POST ", 1.2
        proxy.replaces, proxy.replacements, proxy.replacement = b"GET ", 1, refusal(503, "ending")
        with a.lock("x", wait=5) as hold:
            self.assertEqual([claim["token"] for claim in server.claims("x")], [hold.token])
        self.assertEqual(proxy.replaced, 1)

    def test_a_request_that_was_too_slow_may_be_repeated(self) -> None:
        proxy = self.proxy()
        a = self.client(url=proxy.url)
        a.lock("first").release()
        proxy.replaces, proxy.replacements, proxy.replacement = b"POST /v1/holds ", 1, refusal(408, "too_slow")
        with self.assertRaises(Unavailable) as caught:
            a.lock("x")
        self.assertEqual(caught.exception.code, "too_slow")

    def test_a_callback_that_fails_keeps_no_other_from_its_signal(self) -> None:
        client = self.client(ttl=1)
        failed: List[Any] = []
        self.addCleanup(setattr, threading, "excepthook", threading.excepthook)
        threading.excepthook = failed.append
        one, two = client.lock("x"), client.lock("y")
        heard = threading.Event()
        one.on_lost(lambda: {}["mine"])
        one.on_lost(lambda: sys.exit(1))
        two.on_lost(heard.set)
        self.server.pause()
        try:
            self.assertTrue(heard.wait(5))
        finally:
            self.server.go_on()
        self.assertEqual([each.exc_type for each in failed], [KeyError, SystemExit])
        self.assertTrue(one.is_lost and two.is_lost)
        # Its deadlines are watched further.
        again = client.lock("x", wait=10)
        heard.clear()
        again.on_lost(heard.set)
        self.server.pause()
        self.assertTrue(heard.wait(5))
        self.server.go_on()

    def test_an_interrupted_wait_leaves_the_queue(self) -> None:
        class Interrupt(Exception):
            pass

        def interrupt(*_: Any) -> None:
            raise Interrupt

        a, b = self.client(), self.client()
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        with a.lock("x"):
            b.lock("first").release()
            main = threading.get_ident()

            def send() -> None:
                self.server.wait_for_claims("x", 2)
                signal.pthread_kill(main, signal.SIGALRM)

            sender = Later(send)
            with self.assertRaises(Interrupt):
                b.lock("x")
            sender.get()
            began = now()
            self.server.wait_for_claims("x", 1)
            # The server alone would keep the wait for five seconds.
            self.assertLess(now() - began, 4)

    def test_a_unix_socket_is_an_address(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(listen=f"unix:{folder}/socket")
            self.addCleanup(server.kill)
            with self.client(url=server.url) as client, client.lock("x") as hold:
                self.assertGreater(hold.token, 0)
                self.assertIsNone(client.try_lock("x"))

    def test_an_evicted_hold_is_lost_with_the_next_heartbeat(self) -> None:
        # The server itself learns of it when it renews.
        server = Server("--ttl", "1s")
        self.addCleanup(server.kill)
        hold = self.client(ttl=1, url=server.url).lock("x")
        server.evict("x")
        self.assertTrue(hold.wait_lost(5))
        with self.assertRaises(Lost) as caught:
            hold.check()
        self.assertEqual(caught.exception.reason, "gone")

    def test_the_end_of_the_session_releases_at_once_and_ends_its_waits(self) -> None:
        a, b, c = self.client(), self.client(), self.client()
        a.lock("x")
        ended = Later(lambda: b.lock("x"))
        self.server.wait_for_claims("x", 2)
        goes_on = Later(lambda: c.lock("x"))
        self.server.wait_for_claims("x", 3)
        b.close()
        with self.assertRaises(Closed):
            ended.get(10)
        a.close()
        goes_on.get(10).release()
        with self.assertRaises(Closed):
            a.lock("x")

    def test_the_end_of_the_program_releases_at_once(self) -> None:
        program = (
            "import sys; from lockkeeper_client import Client\n"
            "hold = Client(sys.argv[1], ttl=30).lock('x'); print('held', flush=True); sys.stdin.readline()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program, self.server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        )
        assert child.stdout is not None
        self.assertEqual(child.stdout.readline(), "held\n")
        waiting = Later(lambda: self.client().lock("x"))
        self.server.wait_for_claims("x", 2)
        child.communicate("end\n")
        waiting.get(10).release()

    def test_a_killed_server_is_learned_by_the_deadline(self) -> None:
        a, b = self.client(ttl=1), self.client(ttl=1)
        hold = a.lock("x")
        waiting = Later(lambda: b.lock("x"))
        self.server.wait_for_claims("x", 2)
        until(lambda: hold.valid_for > 0.5)
        self.server.kill()
        self.assertFalse(hold.is_lost, "a broken connection alone loses nothing")
        self.assertTrue(hold.wait_lost(2))
        with self.assertRaises(Unavailable):
            a.lock("x")
        with self.assertRaises(Unavailable):
            waiting.get(10)

    def test_bad_input_is_refused(self) -> None:
        a = self.client()
        with self.assertRaises(Refused) as caught:
            a.lock("")
        self.assertEqual(caught.exception.code, "invalid")
        with self.assertRaises(Refused):
            a.lock()
        with self.assertRaises(ValueError):
            Client("localhost:7670")
        with self.assertRaises(Refused):
            self.client(ttl=0.01).lock("x")

    def test_many_callers_share_a_client(self) -> None:
        client = self.client()
        inside, most = [0], [0]

        def work() -> None:
            for _ in range(5):
                with client.lock("x"):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    inside[0] -= 1

        for each in [Later(work) for _ in range(8)]:
            each.get()
        self.assertEqual(most[0], 1)

    def test_a_token_is_sent(self) -> None:
        made = subprocess.run([BINARY, "serve", "--new-token", "ci"], capture_output=True, text=True, check=True)
        token, line = (text.split(": ", 1)[1] for text in made.stdout.splitlines())
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(f"{line}\n")
            file.flush()
            server = Server("--tokens", file.name)
            self.addCleanup(server.kill)
            with self.assertRaises(Refused) as caught:
                self.client(url=server.url).lock("x")
            self.assertEqual(caught.exception.code, "no_token")
            self.client(url=server.url, token=token).lock("x").release()


if __name__ == "__main__":
    unittest.main()
