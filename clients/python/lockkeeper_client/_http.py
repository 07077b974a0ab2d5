"""Blocking HTTP with connections that are kept, on the standard library."""

from __future__ import annotations

import collections
import http.client
import json
import socket
import threading
from typing import Any, Deque, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

from ._clock import now
from ._core import Reply, Request
from ._errors import NoReply


class Target:
    """The server's address, and what is sent with each request."""

    def __init__(self, url: str, token: Optional[str]) -> None:
        #: The file of the Unix socket, if it is one.
        self.file: Optional[str] = url[len("unix:") :] if url.startswith("unix:/") else None
        parts = urlsplit("http://localhost" if self.file else url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"'{url}' is no address of a server: write it as http://127.0.0.1:7670")
        self.is_tls = parts.scheme == "https"
        self.host: str = parts.hostname
        self.port: int = parts.port or (443 if self.is_tls else 80)
        self.path = parts.path.rstrip("/")
        self._token = token

    def headers(self, request: Request) -> Dict[str, str]:
        headers = {"Accept": "application/json"}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    @staticmethod
    def payload(request: Request) -> bytes:
        return b"" if request.body is None else json.dumps(request.body).encode()


def parse(sent: float, status: int, payload: bytes) -> Reply:
    """The reply with this body. Raises `NoReply` if it is not the server's, but that of a proxy or a sign-in page."""
    if status == 204:
        return Reply(sent, status, {})
    try:
        body: Any = json.loads(payload)
    except ValueError:
        body = None
    marks = {"session": str, "valid_for_ms": int} if status in (200, 201) else {"code": str}
    if not isinstance(body, dict) or not all(isinstance(body.get(mark), kind) for mark, kind in marks.items()):
        raise NoReply(f"a reply with status {status} that is not of a lockkeeper server")
    return Reply(sent, status, body)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, file: str) -> None:
        super().__init__("localhost")
        self._file = file

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._file)


class Http:
    """Sends requests from any number of threads."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: List[http.client.HTTPConnection] = []
        self._mutex = threading.Lock()
        self._closed = False

    def call(self, request: Request) -> Reply:
        """Sends a request and waits for its reply. Raises `NoReply` if there is none."""
        while True:
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            is_fresh = connection is None
            if connection is None:
                connection = self._new_connection()
            try:
                answer = self._send(connection, request)
            except BaseException as error:
                connection.close()
                if not isinstance(error, (OSError, http.client.HTTPException)):
                    raise
                timed_out = isinstance(error, socket.timeout)
                # A connection that was kept may have been closed by the server meanwhile; every request can be repeated.
                if is_fresh or timed_out:
                    raise NoReply(str(error) or type(error).__name__, timed_out) from error
            else:
                return parse(*answer)

    def _new_connection(self) -> http.client.HTTPConnection:
        target = self._target
        if target.file is not None:
            return _UnixConnection(target.file)
        kind = http.client.HTTPSConnection if target.is_tls else http.client.HTTPConnection
        return kind(target.host, target.port)

    def _send(self, connection: http.client.HTTPConnection, request: Request) -> Tuple[float, int, bytes]:
        sent = now()
        timeout = max(0.001, request.timeout)
        connection.timeout = timeout
        if connection.sock is None:
            connection.connect()
        else:
            connection.sock.settimeout(timeout)
        target = self._target
        connection.request(request.method, target.path + request.path, target.payload(request), target.headers(request))
        response = connection.getresponse()
        payload = response.read()
        with self._mutex:
            is_kept = not response.will_close and not self._closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        return sent, response.status, payload

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class Background:
    """Sends requests in a thread, one after another, and tries twice. It may be used by any number of threads."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._waiting: Deque[Request] = collections.deque()
        self._mutex = threading.Lock()
        self._works = False

    def send(self, request: Request) -> None:
        with self._mutex:
            self._waiting.append(request)
            if self._works:
                return
            self._works = True
        try:
            threading.Thread(target=self._work, name="lockkeeper background", daemon=True).start()
        except RuntimeError:
            # The program ends, or has no thread left; the server notices by itself, later.
            self._works = False

    def _work(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._works = False
                    return
                request = self._waiting.popleft()
            for _ in range(2):
                try:
                    self._http.call(request)
                    break
                except NoReply:
                    pass
