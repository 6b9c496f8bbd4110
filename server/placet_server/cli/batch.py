"""`placet submit --batch`: many submissions from JSON lines, each with a result line of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from placet_server.cli.complaint import Complaint
from placet_server.cli.escape import escape
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import seconds_of, time_of
from placet_server.cli.output import print_line, say, warn

if TYPE_CHECKING:
    from placet import Client, PlacetError, Submission, Submitted

LINES_AT_ONCE = 500
BYTES_AT_ONCE = 3 * 2**20
GROUP_SECONDS = 60.0
LINE_BYTES_MAX = 32 * 2**20
SILENT_SECONDS = 3.0
MEMBERS = frozenset(
    ("capability", "input", "key", "queue", "priority", "delay", "at", "version", "attempt_timeout", "labels")
)

# What a line becomes: something to submit, or why it is not.
Line: TypeAlias = "tuple[int, Submission | Complaint]"


@dataclass(slots=True)
class Tally:
    """How many lines came to what."""

    stored: int = 0
    known: int = 0
    refused: int = 0
    code: ExitCode = ExitCode.SUCCEEDED
    said_at: float = field(default_factory=time.monotonic)

    def text(self) -> str:
        return f"{self.stored} stored, {self.known} known by their keys, {self.refused} not stored"

    def refuse(self, code: ExitCode) -> None:
        """The code of all while they are alike."""
        others = self.stored + self.known + self.refused
        self.code = code if not others or (self.refused and self.code == code) else ExitCode.CONFLICT
        self.refused += 1

    def accept(self, *, attached: bool) -> None:
        self.known += attached
        self.stored += not attached
        if self.refused:
            self.code = ExitCode.CONFLICT

    def progress(self) -> None:
        """From time to time, where somebody waits."""
        if time.monotonic() - self.said_at >= SILENT_SECONDS:
            self.said_at = time.monotonic()
            warn(f"so far: {self.text()}")


def submit_batch(client: Client, path: str, defaults: dict[str, Any], *, is_json: bool) -> int:
    """0 if all are stored, 12 if some are, else the code that is common to all refusals."""
    tally = Tally()
    last = 0
    with _opened(path) as lines:
        try:
            for group in _groups(lines, defaults):
                ended = _send(client, group, tally, is_json=is_json)
                last = group[-1][0]
                if ended is not None:
                    warn(
                        f"placet: stopped after line {last}, nothing of what follows was sent; {tally.text()}"
                    )
                    return ended
                tally.progress()
        except KeyboardInterrupt:
            raise Complaint(
                f"interrupted: lines after {last} may be stored or not; {tally.text()}", ExitCode.INTERRUPTED
            ) from None
    if not is_json:
        warn(tally.text())
    return tally.code


def _send(client: Client, group: list[Line], tally: Tally, *, is_json: bool) -> ExitCode | None:
    """The exit code if it makes no sense to go on."""
    from placet.errors import PlacetError
    from placet_server.cli.exit_code import code_of_error

    items = [what for _, what in group if not isinstance(what, Complaint)]
    answers = iter(client.submit_batch(items, timeout=GROUP_SECONDS) if items else ())
    sent: set[ExitCode] = set()
    for number, what in group:
        answer = what if isinstance(what, Complaint) else next(answers)
        if isinstance(answer, Complaint | PlacetError):
            code = answer.code if isinstance(answer, Complaint) else code_of_error(answer)
            tally.refuse(code)
            if answer is not what:
                sent.add(code)
            _tell_refused(number, answer, is_json=is_json)
        else:
            tally.accept(attached=answer.attached)
            sent.add(ExitCode.SUCCEEDED)
            _tell_stored(number, answer, is_json=is_json)
    # Nobody answers, or nobody may: the next group would fare alike.
    if sent in ({ExitCode.UNAVAILABLE}, {ExitCode.FORBIDDEN}):
        return sent.pop()
    return None


def _tell_stored(number: int, answer: Submitted, *, is_json: bool) -> None:
    from placet.v1.action_pb2 import ActionState
    from placet_server.cli.document import word

    state = word(ActionState.DESCRIPTOR, answer.action.state)
    if is_json:
        document = {"action_id": answer.action_id, "state": state, "attached": answer.attached}
        print_line({"line": number, **document, "cursor": answer.action.cursor})
        return
    known = "  its key was known, nothing is added" if answer.attached else ""
    say(f"{number:>6}  {answer.action_id}  {state}{known}")


def _tell_refused(number: int, answer: Complaint | PlacetError, *, is_json: bool) -> None:
    from placet_server.cli.exit_code import code_of_error
    from placet_server.cli.failure import document_of_error, violations_of

    if isinstance(answer, Complaint):
        document: dict[str, Any] = {"kind": answer.kind, "message": answer.message}
        text, code = answer.message, answer.code
    else:
        document, code = document_of_error(answer), code_of_error(answer)
        untold = violations_of(answer)
        said = str(answer).removesuffix(".") if untold else str(answer)
        text = "; ".join([said, *untold, *document["notes"]])
    if is_json:
        print_line({"line": number, "error": {**document, "exit_code": int(code)}})
    else:
        say(f"{number:>6}  {code.name}  {escape(text)}")


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - only the opening is complained about
    except OSError as error:
        raise Complaint(f"--batch {path}: {error.strerror or error}") from None
    with file:
        yield file


def _groups(lines: IO[bytes], defaults: dict[str, Any]) -> Iterator[list[Line]]:
    """As many lines as are sent at once; blank ones are counted and left out. Raises Complaint for one without end."""
    group: list[Line] = []
    number = size = 0
    while text := lines.readline(LINE_BYTES_MAX):
        number += 1
        if len(text) == LINE_BYTES_MAX:
            raise Complaint(f"line {number} is longer than {LINE_BYTES_MAX} bytes", ExitCode.REFUSED)
        if not text.strip():
            continue
        group.append((number, _submission(text, defaults)))
        size += len(text)
        if len(group) == LINES_AT_ONCE or size >= BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _submission(text: bytes, defaults: dict[str, Any]) -> Submission | Complaint:
    """`defaults` are arguments of a Submission: what the line does not say."""
    from placet.batch import Submission, prepare_batch

    try:
        line = json.loads(
            text.decode("utf-8-sig"),
            object_pairs_hook=_members,
            parse_float=_number,
            parse_constant=_no_constant,
        )
        if not isinstance(line, dict):
            raise ValueError("it is not a JSON object")
        if unknown := sorted(line.keys() - MEMBERS):
            raise ValueError(f"there is no member {unknown[0]!r}; there are {', '.join(sorted(MEMBERS))}")
        said = _arguments(line)
        if "delay" in said or "ready_time" in said:
            said = {"delay": None, "ready_time": None} | said
        submission = Submission(**(defaults | said))
        prepare_batch([submission])
    except Complaint as error:
        return Complaint(error.message, ExitCode.REFUSED, "LINE_REFUSED")
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return Complaint(str(error) or "it cannot be read", ExitCode.REFUSED, "LINE_REFUSED")
    return submission


def _arguments(line: dict[str, Any]) -> dict[str, Any]:
    """Of a Submission, for what the line says. Raises ValueError or Complaint for a member of another type."""
    found: dict[str, Any] = {"input": line.get("input", {})}
    for name in ("capability", "key", "queue", "version"):
        value = line.get(name)
        if not isinstance(value, str) and (value is not None or name == "capability"):
            raise ValueError(f"{name} must be a text")
        if value is not None:
            found[name] = value
    if (priority := line.get("priority")) is not None:
        if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= 9:
            raise ValueError("priority must be a number from 0 to 9")
        found["priority"] = priority
    for name in ("delay", "attempt_timeout"):
        if (span := line.get(name)) is not None:
            found[name] = seconds_of(str(span), name)
    if (moment := line.get("at")) is not None:
        found["ready_time"] = time_of(str(moment), "at")
    if (labels := line.get("labels")) is not None:
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            raise ValueError("labels must be an object of texts")
        found["labels"] = labels
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The server would refuse repeated members; read here, one of them would be lost before it could."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a member is repeated")
    return found


def _number(text: str) -> float:
    value = float(text)
    if Decimal(repr(value)) != Decimal(text):
        raise ValueError(f"{text} is not carried exactly as a number; send it as text")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
