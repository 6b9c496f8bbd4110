"""A server as a child: `python -m placet_server.parent.child_main LINK PARENT STORE`.

LINK is one end of a socket pair: what is told to the parent goes in as JSON lines, and its end is the parent's end.
PARENT is the parent's pid. STORE is the descriptor of the lock of the parent's data folder, or "-".

Whose store dies with the parent, dies with it, too, at once: the lock of the data folder is held here until then, so
that whoever owns the folder next knows that nobody of before is still at work. Otherwise the end of the parent is a
drain."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from placet_server import app
from placet_server.app import PlacetServer
from placet_server.config import Config, ConfigRefused, load_config
from placet_server.model.errors import StoreUnavailable

# The parent is told why.
EXIT_FAILED = 1
# Beyond notice and drain.
END_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1


class ParentLink:
    """Told from any thread. A parent that does not read is told nothing."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._told = socket.socket(fileno=os.dup(descriptor))
        self._told.settimeout(None)
        self._lock = threading.Lock()

    def tell(self, **document: Any) -> None:
        with self._lock:
            try:
                self._socket.sendmsg([json.dumps(document).encode() + b"\n"], (), socket.MSG_DONTWAIT)
            except OSError:
                return

    def wait_for_end(self) -> None:
        """Until the parent has ended."""
        try:
            while self._told.recv(4096):
                pass
        except OSError:
            return


def main() -> int:
    link, parent, lock = ParentLink(int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    dies_with_parent = lock != "-"
    if dies_with_parent:
        os.set_inheritable(int(lock), False)
        _die_with_parent()
    if os.getppid() != parent:
        return EXIT_FAILED

    def ready(server: PlacetServer) -> None:
        link.tell(ready={"boot_id": server.kernel.boot_id, "metrics_port": server.ports.metrics})

    def report(statuses: Mapping[str, bool]) -> None:
        link.tell(health=dict(statuses))

    try:
        config = load_config()
        end = _kill_oneself if dies_with_parent else _drainer(config)
        _end_with_parent(link, end)
        return app.run(config, ready, report)
    except ConfigRefused as error:
        link.tell(refused=str(error))
        return EXIT_FAILED
    except StoreUnavailable as error:
        link.tell(unavailable=error.detail)
        return EXIT_FAILED


def _die_with_parent() -> None:
    """Also when this process is stopped. On Linux; elsewhere the thread has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _drainer(config: Config) -> Any:
    def drain() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(config.drain_notice_seconds + config.drain_seconds + END_SECONDS)
        _kill_oneself()

    return drain


def _end_with_parent(link: ParentLink, end: Any) -> None:
    def wait() -> None:
        link.wait_for_end()
        end()

    threading.Thread(target=wait, name="placet-parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
