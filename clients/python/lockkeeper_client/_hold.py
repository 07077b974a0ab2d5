"""A hold as the client sees it: whether it may be trusted, and until when."""

from __future__ import annotations

import sys
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional

from ._clock import now
from ._errors import Lost


class HoldState:
    """What the blocking and the asyncio holds have in common. All methods may be called from any thread."""

    def __init__(self, hold: str, mode: str, tokens: Dict[str, int], deadline: float) -> None:
        self.id = hold
        self.mode = mode
        self._tokens = tokens
        self._deadline = deadline
        self._mutex = threading.Lock()
        self._reason: Optional[str] = None
        self._released = False
        self._uncertain = False
        self._callbacks: List[Callable[[], Any]] = []

    @property
    def state(self) -> str:
        """`held`, `uncertain` (the server or its engine does not reply; good until the deadline), `lost` or `released`."""
        if self.is_lost:
            return "lost"
        return "released" if self._released else "uncertain" if self._uncertain else "held"

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may hold the lock. Reads the clock, so it is right even while the server is silent."""
        if self._reason is None and not self._released and now() >= self._deadline:
            self._lose("deadline")
        return self._reason is not None

    @property
    def valid_for(self) -> float:
        """For how many seconds the hold may be trusted without another word from the server."""
        return 0.0 if self.is_lost or self._released else max(0.0, self._deadline - now())

    def check(self) -> None:
        """Raises `Lost` if the hold is lost."""
        if self.is_lost:
            raise Lost(
                f"the hold of {', '.join(self._tokens)} is lost ({self._reason}): "
                "stop what the lock protects, somebody else may hold it",
                str(self._reason),
            )

    @property
    def tokens(self) -> Dict[str, int]:
        """The fencing token of each lock. Raises `Lost` if the hold is lost."""
        self.check()
        return dict(self._tokens)

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier hold of this lock. Raises `Lost` if the hold is lost."""
        tokens = self.tokens
        if len(tokens) != 1:
            raise ValueError("the hold has several locks: use tokens[name]")
        return next(iter(tokens.values()))

    def on_lost(self, callback: Callable[[], Any]) -> None:
        """Calls this once when the hold is lost, in a thread of the client; at once if it is lost already. Keep it short: the
        callbacks of other holds come after it. What it raises goes to `threading.excepthook`."""
        with self._mutex:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        callback()

    def _confirm(self, deadline: float, uncertain: bool) -> None:
        # Law 2: what was lost stays lost, also if a late reply says otherwise.
        if not self.is_lost:
            self._deadline = max(self._deadline, deadline)
            self._uncertain = uncertain

    def _lose(self, reason: str) -> None:
        lose([self], reason)

    def _mark(self, reason: str) -> List[Callable[[], Any]]:
        """Marks it as lost, and returns who is to hear of it."""
        with self._mutex:
            if self._reason is not None or self._released:
                return []
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
        self._signal()
        return callbacks

    def _signal(self) -> None:
        """The signal of its kind of client. Must not block."""

    def _release(self) -> None:
        """Marks it as released. Raises `Lost` if it was lost before."""
        self.check()
        with self._mutex:
            if self._reason is None:
                self._released = True
        self.check()

    def __repr__(self) -> str:
        return f"<hold of {', '.join(self._tokens)}: {self.state}>"


def lose(holds: Iterable[HoldState], reason: str) -> None:
    """Marks these holds as lost, then calls their callbacks: one that fails keeps no other from its signal."""
    for callback in [callback for hold in holds for callback in hold._mark(reason)]:
        try:
            callback()
        except (Exception, SystemExit):
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
