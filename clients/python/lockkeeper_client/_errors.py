"""What can go wrong, one class for each thing that a caller does about it."""

from __future__ import annotations

from typing import List, Optional


class LockError(Exception):
    """The base of all errors of this package."""


class Busy(LockError, TimeoutError):
    """The wait ended without a grant. `holders` has who holds the locks."""

    def __init__(self, detail: str, holders: List[str]) -> None:
        super().__init__(detail)
        self.holders = holders


class Lost(LockError):
    """The hold is lost: somebody else may hold the lock. Stop what it protects. `reason` says why."""

    def __init__(self, detail: str, reason: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Unavailable(LockError, ConnectionError):
    """The server or its engine did not reply. The same request may succeed later."""

    def __init__(self, detail: str, code: Optional[str] = None) -> None:
        super().__init__(detail)
        self.code = code


class Refused(LockError):
    """The server refused the request; sending it again does not help. `code` is the server's word for it."""

    def __init__(self, detail: str, code: str) -> None:
        super().__init__(detail)
        self.code = code


class Closed(LockError):
    """The client was closed."""


class NoReply(Exception):
    """A request without a reply: it may have been done or not. Not seen by callers."""

    def __init__(self, detail: str, timed_out: bool = False) -> None:
        super().__init__(detail)
        self.timed_out = timed_out
