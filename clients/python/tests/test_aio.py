"""The shared list of behaviours (docs/clients.md), for the asyncio client: what differs from the blocking one."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import unittest
from typing import Any, List, Optional

from lockkeeper_client import Busy, Closed, Lost, Refused, Unavailable
from lockkeeper_client._clock import now
from lockkeeper_client.aio import Client, Hold

from .kit import Proxy, Server, until


class Behaviours(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.kill)

    def client(self, ttl: float = 30.0, url: Optional[str] = None, **more: Any) -> Client:
        client = Client(url or self.server.url, ttl=ttl, **more)
        self.addAsyncCleanup(client.close)
        return client

    def proxy(self) -> Proxy:
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        return proxy

    async def claims(self, name: str, count: int) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.server.wait_for_claims, name, count)

    async def test_lock_excludes_and_a_release_hands_over(self) -> None:
        a, b = self.client(), self.client()
        async with a.lock("x") as hold:
            waiting = asyncio.ensure_future(b._acquire(["x"], "exclusive", None, None))
            await self.claims("x", 2)
            first = hold.token
        second = await waiting
        self.assertGreater(second.token, first)
        await second.release()
        await self.claims("x", 0)

    async def test_try_timed_read_permits_several(self) -> None:
        a, b = self.client(), self.client()
        async with a.lock("x", "y") as hold:
            self.assertEqual(sorted(hold.tokens), ["x", "y"])
            self.assertIsNone(await b.try_lock("x"))
            began = now()
            with self.assertRaises(Busy):
                await b.lock("y", wait=0.5)
            self.assertGreaterEqual(now() - began, 0.5)
            await hold.downgrade()
            await (await b.read("x", wait=0)).release()
        async with a.permits("p", 2, of=3), b.permits("p", of=3, wait=0):
            with self.assertRaises(Busy):
                await a.permits("p", of=3, wait=0)
        with self.assertRaises(Refused):
            await a.lock("")

    async def test_renewal_keeps_a_hold_over_many_ttls(self) -> None:
        a, b = self.client(ttl=0.6), self.client()
        async with a.lock("x") as hold:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(hold.wait_lost(), 3)
            self.assertIsNone(await b.try_lock("x"))
            self.assertEqual(hold.state, "held")

    async def test_lost_before_regrant_when_the_network_is_cut(self) -> None:
        proxy = self.proxy()
        a, b = self.client(ttl=3, url=proxy.url), self.client()
        lost_at: List[float] = []

        async def wait() -> float:
            async with b.lock("x"):
                return now()

        with self.assertRaises(Lost):
            async with a.lock("x") as hold:
                hold.on_lost(lambda: lost_at.append(now()))
                waiting = asyncio.ensure_future(wait())
                await self.claims("x", 2)
                proxy.freeze()
                await asyncio.sleep(30)
        granted_at = await waiting
        self.assertLess(lost_at[0], granted_at)
        proxy.thaw()

    async def test_a_loss_cancels_the_block_while_the_server_is_paused(self) -> None:
        a = self.client(ttl=0.5)
        began = now()
        with self.assertRaises(Lost):
            async with a.lock("x") as hold:
                self.server.pause()
                await asyncio.sleep(30)
        self.assertLess(now() - began, 5)
        self.server.go_on()
        with self.assertRaises(Lost):
            await hold.release()
        async with a.lock("x", wait=10):
            pass

    async def test_a_block_that_swallows_the_cancel_hears_of_the_loss(self) -> None:
        a = self.client(ttl=0.5)
        task = asyncio.current_task()
        for _ in range(2):
            with self.assertRaises(Lost):
                async with a.lock("x", wait=10):
                    self.server.pause()
                    try:
                        await asyncio.sleep(30)
                    except asyncio.CancelledError:
                        pass
            self.server.go_on()
            if hasattr(task, "cancelling"):
                self.assertEqual(task.cancelling(), 0)

    async def test_a_look_of_another_thread_cancels_nothing_after_the_block(self) -> None:
        a = self.client(ttl=0.5)
        with self.assertRaises(Lost):
            async with a.lock("x") as hold:
                self.server.pause()
                # The event loop is busy until the loss, so that its own look comes too late.
                looking = threading.Thread(target=lambda: until(lambda: hold.is_lost))
                looking.start()
                looking.join()
        self.server.go_on()
        await asyncio.sleep(0.1)

    async def test_a_callback_that_fails_keeps_no_other_from_its_signal(self) -> None:
        client = self.client(ttl=1)
        failed: List[Any] = []
        self.addCleanup(setattr, threading, "excepthook", threading.excepthook)
        threading.excepthook = failed.append
        one, two = await client.lock("x"), await client.lock("y")
        one.on_lost(lambda: {}["mine"])
        self.server.pause()
        await asyncio.wait_for(two.wait_lost(), 5)
        await asyncio.wait_for(one.wait_lost(), 5)
        self.server.go_on()
        self.assertEqual([each.exc_type for each in failed], [KeyError])

    async def test_a_unix_socket_is_an_address(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(listen=f"unix:{folder}/socket")
            self.addCleanup(server.kill)
            async with self.client(url=server.url) as client, client.lock("x") as hold:
                self.assertGreater(hold.token, 0)
                self.assertIsNone(await client.try_lock("x"))

    async def test_a_cancel_from_outside_stays_a_cancel(self) -> None:
        a = self.client()
        inside = asyncio.Event()

        async def work() -> None:
            async with a.lock("x"):
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.claims("x", 0)

    async def test_a_cancelled_wait_leaves_the_queue(self) -> None:
        a, b = self.client(), self.client()
        async with a.lock("x"):
            waiting = asyncio.ensure_future(b._acquire(["x"], "exclusive", None, None))
            await self.claims("x", 2)
            began = now()
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            await self.claims("x", 1)
            # The server alone would keep the wait for five seconds.
            self.assertLess(now() - began, 4)

    async def test_a_wait_that_ends_with_its_event_loop_leaves_the_queue(self) -> None:
        async def main() -> None:
            client = Client(self.server.url, ttl=30)
            await client.lock("x")
            asyncio.ensure_future(client._acquire(["x"], "exclusive", None, None))
            await self.claims("x", 2)

        await asyncio.get_running_loop().run_in_executor(None, asyncio.run, main())
        began = now()
        await self.claims("x", 1)
        self.assertLess(now() - began, 4)

    async def test_a_hold_outlives_its_event_loop_until_its_deadline(self) -> None:
        async def main() -> Hold:
            return await Client(self.server.url, ttl=2).lock("x")

        hold = await asyncio.get_running_loop().run_in_executor(None, asyncio.run, main())
        self.assertFalse(hold.is_lost)
        until(lambda: hold.is_lost)

    async def test_a_retry_after_a_lost_reply_finds_the_same_hold(self) -> None:
        proxy = self.proxy()
        client = self.client(url=proxy.url)
        await (await client.lock("first")).release()
        proxy.loses, proxy.losses = b"POST /v1/holds ", 2
        async with client.lock("x", wait=5) as hold:
            self.assertEqual([claim["token"] for claim in self.server.claims("x")], [hold.token])
        self.assertEqual(proxy.lost, 2)

    async def test_the_end_of_the_session_releases_at_once(self) -> None:
        a, b = self.client(), self.client()
        await a.lock("x")
        waiting = asyncio.ensure_future(b._acquire(["x"], "exclusive", None, None))
        await self.claims("x", 2)
        await a.close()
        await (await asyncio.wait_for(waiting, 10)).release()
        with self.assertRaises(Closed):
            await a.lock("x")

    async def test_a_killed_server_is_learned_by_the_deadline(self) -> None:
        a = self.client(ttl=1)
        hold = await a.lock("x")
        self.server.kill()
        self.assertFalse(hold.is_lost)
        await asyncio.wait_for(hold.wait_lost(), 2)
        with self.assertRaises(Unavailable):
            await a.lock("x")


if __name__ == "__main__":
    unittest.main()
