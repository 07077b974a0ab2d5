"""Distributed locks over a `lockkeeper serve` server.

    from lockkeeper_client import Client

    with Client("http://127.0.0.1:7670") as client:
        with client.lock("orders/42") as hold:
            print(hold.token)

`lockkeeper_client.aio` has the same for asyncio. Times are in seconds.
"""

from ._blocking import Client, Hold
from ._errors import Busy, Closed, LockError, Lost, Refused, Unavailable

__all__ = ["Busy", "Client", "Closed", "Hold", "LockError", "Lost", "Refused", "Unavailable"]
