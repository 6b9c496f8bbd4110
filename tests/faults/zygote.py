"""Forks servers from a process that has everything imported already, their app too: a real process each, ready in a
blink.

Orders are JSON lines on standard input: {"environment", "log"}. Reports are JSON lines on standard output:
{"started": pid} in the order of the orders, {"ready": pid, "target", "health", "boot_id"}, {"ended": pid, "code"}.
The end of the input ends every server, by SIGKILL.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
from contextlib import suppress
from typing import Any

from placet_server import app
from placet_server.app import PlacetServer
from placet_server.config import ConfigRefused, load_config
from placet_server.model.errors import StoreUnavailable
from tests.faults import till  # noqa: F401
from tests.warm import warm_up

REFUSED = 78


def main() -> None:
    warm_up()
    # What is here is everybody's: nobody looks it through again, nor copies its pages by doing so.
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: set[int] = set()
    waiting = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            bury(children)
        if 0 in readable:
            read = os.read(0, 65536)
            if not read:
                break
            *orders, waiting = (waiting + read).split(b"\n")
            for order in orders:
                children.add(start(json.loads(order)))
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def start(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = serve(order)
        finally:
            os._exit(code)
    tell(started=pid)
    return pid


def bury(children: set[int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.discard(pid)
            tell(ended=pid, code=os.waitstatus_to_exitcode(status))


def serve(order: dict[str, Any]) -> int:
    """In the child."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(order["environment"])
    reports = os.dup(1)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)

    def ready(server: PlacetServer) -> None:
        boot_id = server.kernel.boot_id
        tell(reports, ready=os.getpid(), target=server.target, health=server.health_target, boot_id=boot_id)

    try:
        return app.run(load_config(), ready)
    except (ConfigRefused, StoreUnavailable) as error:
        print(error, file=sys.stderr, flush=True)
        return REFUSED


def tell(descriptor: int = 1, **report: Any) -> None:
    """Short enough to be written whole, whoever else writes."""
    os.write(descriptor, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    main()
