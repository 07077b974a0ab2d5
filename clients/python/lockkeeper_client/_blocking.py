"""The blocking client, for programs with threads."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Dict, List, Optional, Type, Union

from ._clock import LONGEST_SLEEP
from ._core import Core, Request, Session, Steps, T
from ._errors import Busy, LockError
from ._hold import HoldState
from ._http import Background, Http, Target


class Hold(HoldState):
    """A held lock. Use it in a `with` statement: its end releases, and raises `Lost` if the hold was lost meanwhile."""

    def __init__(
        self, hold: str, mode: str, tokens: Dict[str, int], deadline: float, session: Session, *, client: Client
    ) -> None:
        super().__init__(hold, mode, tokens, deadline)
        self._session = session
        self._client = client
        self._lost = threading.Event()

    def _signal(self) -> None:
        self._lost.set()

    def wait_lost(self, timeout: Optional[float] = None) -> bool:
        """Waits until the hold is lost, at most for `timeout` seconds. Says whether it is lost."""
        return self._lost.wait(timeout) or self.is_lost

    def release(self) -> None:
        """Releases the locks, and waits until the server has done so. Raises `Lost` if they were lost before."""
        self._client._run(self._client._core.release(self, self._session))

    def downgrade(self) -> None:
        """Makes an exclusive hold a shared one; no other writer comes between."""
        self._client._run(self._client._core.downgrade(self, self._session))

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.release()
        except LockError:
            # An error of the block itself says more.
            if error is None:
                raise


class Client:
    """A process at a lockkeeper server, with a session of its own. It may be used by any number of threads."""

    def __init__(self, url: str, *, ttl: float = 10.0, holder: Optional[str] = None, token: Optional[str] = None) -> None:
        """`ttl`: seconds after which the server gives up a silent client. `holder`: name shown to operators.
        `token`: the server's token for this client, if it asks for one."""
        self._http = Http(Target(url, token))
        self._core = Core(ttl, holder, self._start, Background(self._http).send)
        self._pid = os.getpid()
        _clients.add(self)

    def lock(self, *names: str, wait: Optional[float] = None, lease: Optional[float] = None) -> Hold:
        """Waits for these locks, all or nothing, and holds them exclusively. `wait`: seconds to wait at most, after which
        `Busy` is raised; 0 to try. `lease`: seconds after which the hold ends by itself."""
        return self._acquire(names, "exclusive", wait, lease)

    def try_lock(self, *names: str, lease: Optional[float] = None) -> Optional[Hold]:
        """Holds these locks if all of them are free, else returns None."""
        try:
            return self._acquire(names, "exclusive", 0, lease)
        except Busy:
            return None

    def read(self, *names: str, wait: Optional[float] = None, lease: Optional[float] = None) -> Hold:
        """As `lock`, shared with other readers."""
        return self._acquire(names, "shared", wait, lease)

    def permits(
        self, name: str, count: int = 1, *, of: int, wait: Optional[float] = None, lease: Optional[float] = None
    ) -> Hold:
        """As `lock`, for `count` of the `of` permits of a name."""
        return self._acquire((name,), {"permits": count, "of": of}, wait, lease)

    def close(self) -> None:
        """Ends the session: all that it holds is released at once. Called at the end of the program, too."""
        # The child of a fork must not end the session of its parent.
        if os.getpid() == self._pid:
            self._run(self._core.close())
            self._http.close()

    def __enter__(self) -> Client:
        self._run(self._core.open_session())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acquire(
        self, names: Any, mode: Union[str, Dict[str, int]], wait: Optional[float], lease: Optional[float]
    ) -> Hold:
        make = functools.partial(Hold, client=self)
        hold: Hold = self._run(self._core.acquire(list(names), mode, wait, lease, make))
        return hold

    def _run(self, steps: Steps[T], session: Optional[Session] = None) -> T:
        """Does what the steps ask for. Sleeps end with the session, if one is given."""
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
                    done.append(self._http.call(step))
                else:
                    if session is not None:
                        session.ended.wait(step)
                    else:
                        time.sleep(step)
                    done.append(None)
            except BaseException as failed:
                # Of a signal handler's, too: the steps hear of an interrupt.
                error = failed

    def _start(self, session: Session) -> None:
        core = self._core

        def expire() -> None:
            # Apart from the heartbeats: a request that hangs must not delay the lost signal.
            while not session.ended.is_set():
                session.changed.clear()
                session.changed.wait(min(LONGEST_SLEEP, core.expire(session)))

        for name, task in (("heartbeats", lambda: self._run(core.heartbeats(session), session)), ("deadlines", expire)):
            threading.Thread(target=task, name=f"lockkeeper {name}", daemon=True).start()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()
