"""A payment provider as a process of its own: HTTP on loopback, in memory, counting every effect.

POST /refunds    header Idempotency-Key; {"order", "amount"}; the same key again answers the same
                 refund and has no effect
POST /charges    {"reference", "order", "amount"}; GET /charges?reference= looks one up
POST /reimbursements, GET /reimbursements?reference=: as charges
POST /messages   {"to", "text"}; no key, no lookup
GET  /counts     {"refunds": n, "charges": n, "reimbursements": n, "messages": n}: effects that happened
POST /hold       {"phase": "before" | "after"}: from now on every effect waits, before or after it happened,
                 for POST /release; GET /held answers how many wait. A caller that is gone by then changes nothing.

Run as `python -m placet.sample.provider [PORT]` with a pipe as input: the first line of output is the port, and the end
of its input ends it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HELD_SECONDS_MAX = 60.0
BODY_BYTES_MAX = 1 << 20
# What can be looked up by our reference: its name, and how its numbers begin.
REFERRED = {"charges": ("charge", "ch"), "reimbursements": ("reimbursement", "rb")}

Answer = tuple[HTTPStatus, Any]


class Ledger:
    """What has happened. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._phase = ""
        self._held = 0
        self._refunds: dict[str, dict[str, Any]] = {}
        self._referred: dict[tuple[str, str], dict[str, Any]] = {}
        self._counts = {"refunds": 0, "charges": 0, "reimbursements": 0, "messages": 0}

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def held(self) -> int:
        with self._lock:
            return self._held

    def hold(self, phase: str) -> None:
        with self._moved:
            self._phase = phase
            self._moved.notify_all()

    def refund(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        def happen() -> dict[str, Any]:
            if key not in self._refunds:
                self._counts["refunds"] += 1
                self._refunds[key] = {"refund": f"re_{self._counts['refunds']}", **body}
            return self._refunds[key]

        return self._effect(happen)

    def refer(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """`kind`: of REFERRED. Does it, however often it is told to, under the reference of the body."""

        def happen() -> dict[str, Any]:
            name, prefix = REFERRED[kind]
            self._counts[kind] += 1
            made = {name: f"{prefix}_{self._counts[kind]}", **body}
            self._referred[kind, body["reference"]] = made
            return made

        return self._effect(happen)

    def referred(self, kind: str, reference: str) -> dict[str, Any] | None:
        with self._lock:
            return self._referred.get((kind, reference))

    def message(self, body: dict[str, Any]) -> dict[str, Any]:
        def happen() -> dict[str, Any]:
            self._counts["messages"] += 1
            return {"message": f"msg_{self._counts['messages']}", **body}

        return self._effect(happen)

    def _effect(self, happen: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with self._moved:
            self._wait_while_held("before")
            answer = happen()
            self._wait_while_held("after")
            return answer

    def _wait_while_held(self, phase: str) -> None:
        if self._phase != phase:
            return
        self._held += 1
        self._moved.wait_for(lambda: self._phase != phase, HELD_SECONDS_MAX)
        self._held -= 1


def start(port: int = 0) -> ThreadingHTTPServer:
    """Listen on loopback, in threads of this process; `shutdown()` and `server_close()` end it."""
    ledger = Ledger()

    class Handler(_Handler):
        pass

    Handler.ledger = ledger
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), name="provider", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    ledger: Ledger
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/counts":
            self._answer(HTTPStatus.OK, self.ledger.counts())
        elif url.path == "/held":
            self._answer(HTTPStatus.OK, {"held": self.ledger.held()})
        elif url.path[1:] in REFERRED:
            kind = url.path[1:]
            found = self.ledger.referred(kind, parse_qs(url.query).get("reference", [""])[0])
            self._answer(
                HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK,
                found or {"error": f"no_such_{REFERRED[kind][0]}"},
            )
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no_such_page"})

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", "0"))
            if not 0 <= length <= BODY_BYTES_MAX:
                raise ValueError("too long")
            body = json.loads(self.rfile.read(length) or b"{}")
            status, answer = self._post(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.close_connection = True
            status, answer = HTTPStatus.BAD_REQUEST, {"error": "bad_request", "detail": repr(error)}
        self._answer(status, answer)

    def _post(self, body: dict[str, Any]) -> Answer:
        ledger = self.ledger
        match self.path:
            case "/refunds":
                key = self.headers["Idempotency-Key"]
                if not key:
                    return HTTPStatus.BAD_REQUEST, {"error": "idempotency_key_missing"}
                return HTTPStatus.OK, ledger.refund(key, {"order": body["order"], "amount": body["amount"]})
            case "/charges" | "/reimbursements":
                told = {name: body[name] for name in ("reference", "order", "amount")}
                return HTTPStatus.OK, ledger.refer(self.path[1:], told)
            case "/messages":
                return HTTPStatus.OK, ledger.message({"to": body["to"], "text": body["text"]})
            case "/hold":
                if body["phase"] not in ("before", "after"):
                    raise ValueError("phase is before or after")
                ledger.hold(body["phase"])
                return HTTPStatus.OK, {}
            case "/release":
                ledger.hold("")
                return HTTPStatus.OK, {}
        return HTTPStatus.NOT_FOUND, {"error": "no_such_page"}

    def _answer(self, status: HTTPStatus, answer: Any) -> None:
        text = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except (BrokenPipeError, ConnectionResetError):
            # The caller was killed while its effect was held: expected, and the effect stands.
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    server = start(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(server.server_address[1], flush=True)
    # Whoever started us holds our input; its end ends us.
    sys.stdin.buffer.read()
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
