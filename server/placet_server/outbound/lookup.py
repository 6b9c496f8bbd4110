"""Names looked up, each by one thread at a time.

Not the event loop's own: it has a few threads for all, so that some names whose servers do not answer would hold up
every other. A thread that looks up cannot be stopped, and nobody waits for it at the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address

ADDRESSES_MAX = 8
LOOKUPS_MAX = 64


class Lookups:
    """Belongs to one event loop. At most LOOKUPS_MAX names at a time; whoever asks for a name that is being looked up
    gets the same answer."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[tuple[Address, ...]]] = {}

    async def find(self, name: str) -> tuple[Address, ...]:
        """At most ADDRESSES_MAX, and at least one. Raises OSError."""
        found = self._asked.get(name)
        if found is None:
            if len(self._asked) >= LOOKUPS_MAX:
                raise OSError("too many names are being looked up")
            found = self._asked[name] = self._look_up(name)
        return await asyncio.shield(found)

    def _look_up(self, name: str) -> asyncio.Future[tuple[Address, ...]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Address, ...]] = loop.create_future()

        def answer(found: tuple[Address, ...] | OSError) -> None:
            del self._asked[name]
            if isinstance(found, OSError):
                future.set_exception(found)
                # It may be that nobody waits any more.
                future.exception()
            else:
                future.set_result(found)

        def ask() -> None:
            found = _addresses(name)
            # The loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(answer, found)

        threading.Thread(target=ask, name="placet-lookup", daemon=True).start()
        return future


def _addresses(name: str) -> tuple[Address, ...] | OSError:
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(f"{name} is no name")
    addresses = dict.fromkeys(ip_address(str(row[4][0]).partition("%")[0]) for row in rows)
    return tuple(addresses)[:ADDRESSES_MAX] or OSError(f"{name} has no address")
