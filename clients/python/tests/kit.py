"""A real server for each test, and a proxy in front of it that breaks what it is told to break."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from typing import Any, Callable, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = os.environ.get("LOCKKEEPER_BINARY") or str(ROOT / "target/debug/lockkeeper")


PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>Sign in</html>"


def refusal(status: int, code: str) -> bytes:
    """A reply as the server's to what it refuses."""
    body = json.dumps({"status": status, "code": code, "detail": code})
    head = f"HTTP/1.1 {status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()


class Server:
    """A server of its own on a free port, or where it is told to listen."""

    def __init__(self, *options: str, listen: str = "127.0.0.1:0") -> None:
        command = [BINARY, "serve", "--listen", listen, "--engine", "memory:", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.url = line.split()[-1]
        self.port = 0 if self.url.startswith("unix:") else int(self.url.rsplit(":", 1)[1])

    def claims(self, name: str) -> List[Any]:
        """The claims of a lock, in order."""
        with urllib.request.urlopen(f"{self.url}/v1/locks/{name}") as reply:
            claims: List[Any] = json.load(reply)["claims"]
        return claims

    def ask(self, session: str, *names: str) -> None:
        """A request for a hold that no client knows of."""
        body = json.dumps({"session": session, "names": names}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/v1/holds", body, headers)).close()

    def evict(self, name: str) -> None:
        claim = self.claims(name)[0]["id"]
        request = urllib.request.Request(f"{self.url}/v1/locks/{name}/claims/{claim}", method="DELETE")
        urllib.request.urlopen(request).close()

    def wait_for_claims(self, name: str, count: int) -> None:
        until(lambda: len(self.claims(name)) == count)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for something that no message tells of."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Proxy:
    """Forwards connections to a server, until it is told otherwise."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: List[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
        #: Replies to requests that begin with this text are lost with their connection,
        self.loses: Optional[bytes] = None
        #: or something else comes in their place,
        self.replaces: Optional[bytes] = None
        self.replacement = PAGE
        self.replaced = 0
        #: How often to replace a reply.
        self.replacements = 0
        #: or come this many seconds late.
        self.delays: Optional[bytes] = None
        self.delay = 0.0
        self.lost = 0
        #: How often to lose a reply.
        self.losses = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Swallows all data, in both directions, and keeps the connections open."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._flows.set()
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            self._sockets += [client, server]
            asked: List[bytes] = [b""]
            threading.Thread(target=self._pump, args=(client, server, asked, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, asked, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, asked: List[bytes], is_request: bool) -> None:
        try:
            while True:
                data = source.recv(65536)
                self._flows.wait()
                if not data:
                    break
                if is_request and b" HTTP/1.1\r\n" in data:
                    asked[0] = data
                elif not is_request:
                    if self.loses is not None and asked[0].startswith(self.loses) and self.losses > 0:
                        self.losses -= 1
                        self.lost += 1
                        break
                    if self.replaces is not None and asked[0].startswith(self.replaces) and self.replacements > 0:
                        self.replacements -= 1
                        self.replaced += 1
                        target.sendall(self.replacement)
                        break
                    if self.delays is not None and asked[0].startswith(self.delays):
                        time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
