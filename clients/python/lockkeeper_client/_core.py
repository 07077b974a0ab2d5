"""What the client sends and what it concludes from the replies, without any input or output.

Every procedure is a generator: it yields a `Request` and gets its `Reply` (or a `NoReply` is raised in it), or yields a
number of seconds to sleep. The blocking and the asyncio clients differ only in how they do these two things.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generator, List, Optional, Set, TypeVar, Union

from ._clock import now
from ._errors import Busy, Closed, LockError, Lost, NoReply, Refused, Unavailable
from ._hold import HoldState, lose

T = TypeVar("T")

#: The server's and the client's clocks may go at slightly different rates.
RATE = 0.99


@dataclass
class Request:
    """A request to the server."""

    method: str
    path: str
    timeout: float
    body: Optional[Dict[str, Any]] = None
    key: Optional[str] = None


@dataclass
class Reply:
    """A reply, with the moment before its request was sent: what it says about time counts from there (Law 5)."""

    sent: float
    status: int
    body: Dict[str, Any]

    @property
    def code(self) -> str:
        return str(self.body.get("code", self.status))

    @property
    def deadline(self) -> float:
        waited: float = RATE * self.body.get("waited_ms", 0)
        valid_for: float = self.body["valid_for_ms"]
        return self.sent + (waited + valid_for) / 1000

    def says_session_ended(self) -> bool:
        return self.code in ("unknown_session", "session_ended")

    def error(self) -> Exception:
        detail = str(self.body.get("detail") or f"the server replied with status {self.status}")
        if self.code == "busy":
            return Busy(detail, [who for lock in self.body.get("busy") or [] for who in lock["holders"]])
        if self.code in ("lost", "session_ended", "unknown_session"):
            return Lost(detail, str(self.body.get("reason") or self.code))
        if self.status in (408, 429) or self.status >= 500:
            return Unavailable(detail, self.code)
        return Refused(detail, self.code)


Steps = Generator[Union[Request, float], Any, T]


class Session:
    """A session at the server, and the holds that this client has in it."""

    def __init__(self, session: str, ttl: float, heartbeat: float, deadline: float) -> None:
        self.id = session
        self.ttl = ttl
        # How long after one heartbeat the next is sent; no deadline goes beyond the TTL at the server's engine.
        self.heartbeat = heartbeat
        self.deadline = deadline
        self.ended = threading.Event()
        # Set when there is another deadline to look at.
        self.changed = threading.Event()
        self.holds: Dict[str, HoldState] = {}
        # Holds that the last heartbeat listed and this client knows nothing of: the reply that told of them was lost.
        self.unknown: Set[str] = set()
        self.given_up: Set[str] = set()


Make = Callable[[str, str, Dict[str, int], float, Session], HoldState]


class Core:
    """All that a client knows."""

    def __init__(
        self,
        ttl: float,
        holder: Optional[str],
        start: Callable[[Session], None],
        send_later: Callable[[Request], None],
    ) -> None:
        self._ttl = ttl
        who = holder or os.path.basename(sys.argv[0] or "") or "python"
        self._holder = {"who": who, "host": socket.gethostname(), "pid": os.getpid()}
        # Starts the heartbeats of a session.
        self._start = start
        # Sends in the background what ends by itself, later, if it gets lost.
        self._send_later = send_later
        self._mutex = threading.RLock()
        self.session: Optional[Session] = None
        self.closed = False

    def is_over(self, session: Session) -> bool:
        """Whether the session has ended, or may have: its time is over."""
        if not session.ended.is_set() and now() >= session.deadline:
            self.end(session, "deadline")
        return session.ended.is_set()

    def end(self, session: Session, reason: str) -> None:
        """The session has ended, and all that it held is lost."""
        with self._mutex:
            session.ended.set()
            session.changed.set()
            holds, session.holds = list(session.holds.values()), {}
        lose(holds, reason)

    def open_session(self) -> Steps[Session]:
        """The session of this client; a new one if there is none, or if it has ended."""
        key, tries = secrets.token_hex(16), 0
        while True:
            with self._mutex:
                if self.closed:
                    raise Closed("the client was closed: make a new one")
                if self.session is not None and not self.is_over(self.session):
                    return self.session
            tries += 1
            body = {"ttl": round(self._ttl * 1000), "holder": self._holder}
            try:
                reply: Reply = yield Request("POST", "/v1/sessions", self._ttl, body, key)
            except NoReply as error:
                if tries > 1:
                    raise Unavailable(f"no session: {error}") from error
                continue
            if reply.status != 201:
                raise reply.error()
            ttl = reply.body["ttl_ms"] / 1000
            heartbeat = reply.body["heartbeat_ms"] / 1000
            session = Session(reply.body["session"], ttl, heartbeat, reply.deadline)
            with self._mutex:
                other = self.session
                is_first = not self.closed and (other is None or self.is_over(other))
                if is_first:
                    self.session = session
            if is_first:
                self._start(session)
            else:
                # Another caller was quicker, or the client was closed meanwhile.
                yield from self._quietly(Request("DELETE", f"/v1/sessions/{session.id}", self._ttl))

    def acquire(
        self,
        names: List[str],
        mode: Union[str, Dict[str, int]],
        wait: Optional[float],
        lease: Optional[float],
        make: Make,
    ) -> Steps[Any]:
        """Waits for the locks. If the session ends meanwhile, waits anew in another."""
        body: Dict[str, Any] = {"names": names, "mode": mode}
        if wait is not None:
            body["wait"] = round(wait * 1000)
        if lease is not None:
            body["lease"] = round(lease * 1000)
        end = None if wait is None else now() + wait
        while True:
            session = yield from self.open_session()
            # Law 4: chosen before anything is sent, so that a retry finds the same wait or the same hold.
            key = secrets.token_hex(16)
            try:
                hold = yield from self._ask(session, key, {"session": session.id, **body}, end, make)
            except (LockError, GeneratorExit):
                raise
            except BaseException:
                # The caller was cancelled or interrupted: those who wait behind it must not wait for the server to notice.
                if not session.ended.is_set():
                    path = f"/v1/sessions/{session.id}/requests/{key}"
                    self._send_later(Request("DELETE", path, session.ttl / 3))
                raise
            if hold is not None:
                return hold

    def _ask(
        self, session: Session, key: str, body: Dict[str, Any], end: Optional[float], make: Make
    ) -> Steps[Optional[HoldState]]:
        """One request by its key, repeated until there is a reply. None if it must be made anew."""
        pause = 0.02
        while True:
            # A long wait is cut and sent again, so that a dead connection does not go unnoticed. Its place is kept.
            longest = min(30.0, max(1.0, session.ttl))
            timeout = longest if end is None else min(longest, max(0.0, end - now()) + session.ttl)
            try:
                reply: Reply = yield Request("POST", "/v1/holds", timeout, body, key)
            except NoReply as error:
                if end is not None and now() >= end + session.ttl:
                    raise Unavailable(f"the wait ended without a reply: {error}") from error
                if self.is_over(session):
                    return None
                if not error.timed_out:
                    yield pause
                    pause = min(2 * pause, session.ttl / 10)
                continue
            if reply.status == 201:
                hold = yield from self._believe(session, reply, make)
                return hold
            if reply.says_session_ended():
                self.end(session, str(reply.body.get("reason") or reply.code))
                return None
            if reply.code in ("lost", "released"):
                return None
            if reply.code == "busy" and "busy" not in reply.body and (end is None or now() < end):
                # The server had given up the wait when the retry came.
                return None
            raise reply.error()

    def _believe(self, session: Session, reply: Reply, make: Make) -> Steps[Optional[HoldState]]:
        """The hold of a grant, if there is time left to trust it."""
        found = reply.body
        path, deadline = f"/v1/holds/{found['hold']}", reply.deadline
        if deadline - now() < found["valid_for_ms"] / 2000:
            # After a long wait little may be left, because of the rate of the clocks: a short request tells it exactly.
            try:
                again: Reply = yield Request("GET", path, session.ttl / 3)
                if again.status in (404, 410):
                    return None
                # A refusal leaves the hold where it is, and the next request would wait behind it: it is released.
                deadline = max(deadline, again.deadline) if again.status == 200 else 0.0
            except NoReply:
                pass
        with self._mutex:
            is_good = not self.is_over(session) and found["hold"] not in session.given_up and now() < deadline
            if is_good:
                tokens = {token["name"]: token["token"] for token in found["tokens"]}
                hold = make(found["hold"], found["mode"], tokens, deadline, session)
                session.holds[hold.id] = hold
                session.changed.set()
                return hold
        yield from self._quietly(Request("DELETE", path, session.ttl / 3))
        return None

    def heartbeats(self, session: Session) -> Steps[None]:
        """Keeps a session until it ends."""
        yield session.heartbeat
        while not self.is_over(session):
            known = set(session.holds)
            try:
                reply: Reply = yield Request("POST", f"/v1/sessions/{session.id}/heartbeat", session.heartbeat)
            except NoReply:
                for hold in list(session.holds.values()):
                    hold._uncertain = True
                yield session.heartbeat / 6
                continue
            if reply.says_session_ended():
                return self.end(session, str(reply.body.get("reason") or reply.code))
            if reply.status != 200:
                yield session.heartbeat / 3
                continue
            for orphan in self._confirm(session, reply, known):
                yield from self._quietly(Request("DELETE", f"/v1/holds/{orphan}", session.ttl / 3))
            yield max(0.0, reply.sent + session.heartbeat - now())

    def _confirm(self, session: Session, reply: Reply, known: Set[str]) -> Set[str]:
        """Takes over what a heartbeat's reply says. Returns the holds that nobody here has or waits for."""
        if self.is_over(session):
            return set()
        listed = {hold["hold"]: hold for hold in reply.body["holds"]}
        session.deadline = max(session.deadline, reply.deadline)
        for name, hold in list(session.holds.items()):
            said = listed.get(name)
            if said is not None and said["state"] != "lost":
                hold._confirm(reply.sent + said["valid_for_ms"] / 1000, said["state"] == "uncertain")
            elif said is not None or name in known:
                hold._lose(said["reason"] if said else "gone")
            if hold.is_lost or hold._released:
                session.holds.pop(name, None)
        with self._mutex:
            # One that is listed twice, a third of the TTL apart, and unknown: its reply was lost, or its caller gave up.
            unknown = {name for name in listed if name not in session.holds}
            orphans = session.unknown & unknown
            session.unknown = unknown - orphans
            session.given_up |= orphans
        return orphans

    def expire(self, session: Session) -> float:
        """Fires the lost signals whose time has come. Returns the seconds until the next."""
        if self.is_over(session):
            return 0.0
        holds = list(session.holds.values())
        lose([hold for hold in holds if now() >= hold._deadline], "deadline")
        deadlines = [hold._deadline for hold in holds if not hold.is_lost]
        return max(0.0, min([session.deadline, *deadlines]) - now())

    def release(self, hold: HoldState, session: Session) -> Steps[None]:
        """Releases a hold. Raises `Lost` if it was lost before."""
        if hold._released:
            return
        hold._release()
        session.holds.pop(hold.id, None)
        reply = yield from self._until_replied(session, hold, Request("DELETE", f"/v1/holds/{hold.id}", session.ttl / 3))
        if reply.status != 204:
            raise reply.error()

    def downgrade(self, hold: HoldState, session: Session) -> Steps[None]:
        """Makes an exclusive hold a shared one."""
        hold.check()
        path = f"/v1/holds/{hold.id}"
        reply = yield from self._until_replied(session, hold, Request("POST", f"{path}/downgrade", session.ttl / 3))
        if reply.code == "invalid":
            # The reply to an earlier try may have been lost.
            reply = yield from self._until_replied(session, hold, Request("GET", path, session.ttl / 3))
        if reply.code == "lost":
            hold._lose(str(reply.body.get("reason") or "lost"))
        if reply.status != 200:
            raise reply.error()
        if reply.body["mode"] != "shared":
            raise Refused("only an exclusive hold can be downgraded", "invalid")
        hold.mode = "shared"
        hold._confirm(reply.deadline, reply.body["state"] == "uncertain")

    def _until_replied(self, session: Session, hold: HoldState, request: Request) -> Steps[Reply]:
        while True:
            try:
                reply: Reply = yield request
                return reply
            except NoReply as error:
                if now() >= hold._deadline or self.is_over(session):
                    raise Unavailable(f"no reply: {error}. The lock is free at the latest after the TTL") from error
                yield session.ttl / 100

    def close(self) -> Steps[None]:
        """Ends the session, and with it all that it holds and waits for."""
        with self._mutex:
            self.closed = True
            session = self.session
            if session is None or session.ended.is_set():
                return
            session.ended.set()
            session.changed.set()
            holds, session.holds = list(session.holds.values()), {}
        for hold in holds:
            if not hold.is_lost:
                hold._released = True
        yield from self._quietly(Request("DELETE", f"/v1/sessions/{session.id}", session.ttl / 3))

    @staticmethod
    def _quietly(request: Request) -> Steps[None]:
        """Sends what ends by itself, later, if it gets lost."""
        for _ in range(2):
            try:
                yield request
                return
            except NoReply:
                pass
