"""The same client for asyncio. A hold that is lost cancels the `async with` block that it protects."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from types import TracebackType
from typing import Any, Coroutine, Dict, Generator, List, Optional, Set, Tuple, Type, Union

from ._clock import LONGEST_SLEEP, now
from ._core import Core, Reply, Request, Session, Steps, T
from ._errors import Busy, LockError, Lost, NoReply
from ._hold import HoldState
from ._http import Background, Http, Target, parse

__all__ = ["Client", "Hold"]

Connection = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.wait_for`, which before Python 3.12 swallows a cancel that comes in one turn with the end of the work."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()


class _Http:
    """Sends requests over connections that are kept."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: List[Connection] = []

    async def call(self, request: Request) -> Reply:
        """Sends a request and waits for its reply. Raises `NoReply` if there is none; cancelled, it closes the connection."""
        while True:
            connection = self._idle.pop() if self._idle else None
            try:
                return await _within(max(0.001, request.timeout), self._send(connection, request))
            except asyncio.TimeoutError as error:
                raise NoReply("timed out", timed_out=True) from error
            except (OSError, EOFError, ValueError) as error:
                # A connection that was kept may have been closed by the server meanwhile; every request can be repeated.
                if connection is None:
                    raise NoReply(str(error) or type(error).__name__) from error

    async def _send(self, connection: Optional[Connection], request: Request) -> Reply:
        sent, target = now(), self._target
        if connection is None:
            if target.file is not None:
                connection = await asyncio.open_unix_connection(target.file)
            else:
                connection = await asyncio.open_connection(target.host, target.port, ssl=target.is_tls or None)
        reader, writer = connection
        try:
            payload = target.payload(request)
            host = f"[{target.host}]" if ":" in target.host else target.host
            headers = {"Host": f"{host}:{target.port}", "Content-Length": str(len(payload)), **target.headers(request)}
            lines = [f"{request.method} {target.path}{request.path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + payload)
            await writer.drain()
            status, replied = await _head(reader)
            body = await _body(reader, status, replied)
        except BaseException:
            writer.transport.abort()
            raise
        if "close" in replied.get("connection", ""):
            writer.close()
        else:
            self._idle.append(connection)
        return parse(sent, status, body)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle = []


async def _head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, status = lines[0].split(" ")[:2]
    if not version.startswith("HTTP/1."):
        raise ValueError("the server does not speak HTTP/1.1")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(status), {name.strip().lower(): value.strip().lower() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, status: int, headers: Dict[str, str]) -> bytes:
    if status in (204, 304):
        return b""
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            chunk = await reader.readexactly(size + 2)
            if size == 0:
                return body
            body += chunk[:-2]
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    headers["connection"] = "close"
    return await reader.read()


class Hold(HoldState):
    """A held lock. Use it in an `async with` statement: its end releases; if the hold is lost meanwhile, the block is
    cancelled and `Lost` is raised."""

    def __init__(
        self, hold: str, mode: str, tokens: Dict[str, int], deadline: float, session: Session, *, client: Client
    ) -> None:
        super().__init__(hold, mode, tokens, deadline)
        self._session = session
        self._client = client
        self._task: Optional[asyncio.Task[Any]] = None
        self._cancelled = False
        self._lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def wait_lost(self) -> None:
        """Waits until the hold is lost."""
        await self._lost.wait()

    async def release(self) -> None:
        """Releases the locks, and waits until the server has done so. Raises `Lost` if they were lost before."""
        await self._client._run(self._client._core.release(self, self._session))

    async def downgrade(self) -> None:
        """Makes an exclusive hold a shared one; no other writer comes between."""
        await self._client._run(self._client._core.downgrade(self, self._session))

    def _signal(self) -> None:
        if _running_loop() is self._loop:
            self._cancel()
        else:
            # Another thread has looked at the hold. Of a loop that has ended nobody waits any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._lost.set()
        # Code that looks at the hold itself is told by the look, and goes on to clean up.
        if self._task is not None and self._task is not asyncio.current_task():
            self._cancelled = True
            self._task.cancel()

    async def __aenter__(self) -> Hold:
        self.check()
        self._task = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        task, self._task = self._task, None
        if self._cancelled:
            # Taken back also if the block has swallowed it: it must not count for what comes after the block.
            others = task.uncancel() if hasattr(task, "uncancel") else 0  # type: ignore[union-attr]
            if isinstance(error, asyncio.CancelledError):
                # If the task was cancelled by somebody else besides, it stays cancelled.
                if others == 0:
                    self.check()
                return
        try:
            await self.release()
        except LockError:
            if error is None:
                raise


def _running_loop() -> Optional[asyncio.AbstractEventLoop]:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Acquiring:
    """A wait for locks: await it, or use it in an `async with` statement."""

    def __init__(self, client: Client, *what: Any) -> None:
        self._client = client
        self._what = what
        self._hold: Optional[Hold] = None

    def __await__(self) -> Generator[Any, None, Hold]:
        return self._client._acquire(*self._what).__await__()

    async def __aenter__(self) -> Hold:
        self._hold = await self
        return await self._hold.__aenter__()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        assert self._hold is not None
        await self._hold.__aexit__(kind, error, trace)


class Client:
    """A process at a lockkeeper server, with a session of its own. It belongs to the event loop that uses it."""

    def __init__(self, url: str, *, ttl: float = 10.0, holder: Optional[str] = None, token: Optional[str] = None) -> None:
        """`ttl`: seconds after which the server gives up a silent client. `holder`: name shown to operators.
        `token`: the server's token for this client, if it asks for one."""
        target = Target(url, token)
        self._http = _Http(target)
        # Of a thread: a wait that is cancelled because the event loop ends leaves the queue, too.
        self._background = Http(target)
        self._core = Core(ttl, holder, self._start, Background(self._background).send)
        self._tasks: Set[asyncio.Task[None]] = set()
        self._new_hold: Optional[asyncio.Event] = None

    def lock(self, *names: str, wait: Optional[float] = None, lease: Optional[float] = None) -> _Acquiring:
        """Waits for these locks, all or nothing, and holds them exclusively. `wait`: seconds to wait at most, after which
        `Busy` is raised; 0 to try. `lease`: seconds after which the hold ends by itself. Cancelled, it leaves the queue."""
        return _Acquiring(self, names, "exclusive", wait, lease)

    async def try_lock(self, *names: str, lease: Optional[float] = None) -> Optional[Hold]:
        """Holds these locks if all of them are free, else returns None."""
        try:
            return await self._acquire(names, "exclusive", 0, lease)
        except Busy:
            return None

    def read(self, *names: str, wait: Optional[float] = None, lease: Optional[float] = None) -> _Acquiring:
        """As `lock`, shared with other readers."""
        return _Acquiring(self, names, "shared", wait, lease)

    def permits(
        self, name: str, count: int = 1, *, of: int, wait: Optional[float] = None, lease: Optional[float] = None
    ) -> _Acquiring:
        """As `lock`, for `count` of the `of` permits of a name."""
        return _Acquiring(self, (name,), {"permits": count, "of": of}, wait, lease)

    async def close(self) -> None:
        """Ends the session: all that it holds is released at once."""
        for task in self._tasks:
            task.cancel()
        await self._run(self._core.close())
        self._http.close()
        self._background.close()

    async def __aenter__(self) -> Client:
        await self._run(self._core.open_session())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _acquire(
        self, names: Any, mode: Union[str, Dict[str, int]], wait: Optional[float], lease: Optional[float]
    ) -> Hold:
        make = functools.partial(Hold, client=self)
        hold: Hold = await self._run(self._core.acquire(list(names), mode, wait, lease, make))
        if self._new_hold is not None:
            self._new_hold.set()
        return hold

    async def _run(self, steps: Steps[T]) -> T:
        """Does what the steps ask for."""
        done: List[Any] = [None]
        error: Optional[BaseException] = None
        while True:
            try:
                step = steps.send(done.pop()) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            error = None
            try:
                if isinstance(step, Request):
                    done.append(await self._http.call(step))
                else:
                    await asyncio.sleep(step)
                    done.append(None)
            except (NoReply, asyncio.CancelledError) as failed:
                # The steps hear of a cancel, too.
                error = failed

    def _start(self, session: Session) -> None:
        self._new_hold = asyncio.Event()
        for steps in (self._run(self._core.heartbeats(session)), self._expire(session, self._new_hold)):
            task = asyncio.ensure_future(steps)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _expire(self, session: Session, new_hold: asyncio.Event) -> None:
        # Apart from the heartbeats: a request that hangs must not delay the lost signal.
        while not session.ended.is_set():
            new_hold.clear()
            try:
                await _within(min(LONGEST_SLEEP, self._core.expire(session)), new_hold.wait())
            except asyncio.TimeoutError:
                pass
