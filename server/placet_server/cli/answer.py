"""`placet answer`: an answer to a question that waits for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.claim import ApprovalId
from placet_server.cli.complaint import Complaint
from placet_server.cli.escape import escape
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json, Target, payload_of
from placet_server.cli.output import print_document, say, warn

if TYPE_CHECKING:
    from placet import Client

Value = Annotated[
    str | None,
    typer.Argument(
        metavar="ANSWER|@FILE|-",
        help="One of the choices, JSON, or text. Default: asked.",
        show_default=False,
    ),
]


def answer(
    approval_id: ApprovalId,
    value: Value = None,
    digest: Annotated[
        str, typer.Option(metavar="HEX", help="What was looked at, as `placet show` tells it.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Why, in words; kept with the answer.")] = "",
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Answer a question. The first answer that fits counts; `placet deny` says that there will be none.

    At a terminal the question is shown, with its choices as a menu, and you are asked. Without one ANSWER and --digest
    are needed. Where text is wanted ANSWER is that text; elsewhere it is JSON.

    \b
    Examples:
      placet answer 01996f0a-3c4d-7aaa
      placet answer 01996f0a-3c4d-7aaa 1210 --digest "$DIGEST" --reason "it is the newer one"
      placet answer 01996f0a-3c4d-7aaa @answer.json --digest "$DIGEST" --json
    """
    from placet_server.cli.approval import look_at
    from placet_server.cli.approval_id import find_approval
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect
    from placet_server.cli.vote import checked_digest, is_person, name_of_decision

    said = checked_digest(digest) if digest else ""
    is_asked = not (said and value is not None)
    if is_asked and (is_json or not is_person()):
        raise Complaint(
            "without a terminal say ANSWER, and the --digest of the question that you have looked at"
        )
    with connect(target) as client:
        found = look_at(client, find_approval(client, approval_id))
        if found["kind"] != "INPUT":
            raise Complaint(f"it wants a yes or a no: placet approve {found['approval_id']}, or placet deny")
        text = _asked(found, value) if is_asked else _text_of(found, value or "")
        content = (found["approval_id"], said or found["digest"], _voter(client), "answer", text, reason)
        answered = document_of(
            client.answer(
                found["approval_id"],
                text.encode(),
                digest=said or found["digest"],
                reason=reason,
                decision_id=name_of_decision(content),
            )
        )
    if is_json:
        print_document({"approval": answered})
    else:
        say(f"{answered['approval_id']}  answered: placet watch {answered['action_id']}")


def print_question(found: dict[str, Any]) -> None:
    """Whole. All of it is the words of who asks."""
    from placet_server.cli.approval import print_question_facts

    asked = found["input"] or {}
    print_question_facts(found)
    for line in str(asked.get("prompt", "")).splitlines():
        say(f"  | {escape(line)}")
    for number, choice in enumerate(asked.get("choices", ()), start=1):
        say(f"{number:>4}  {_shown(choice)}")
    say(f"digest            {found['digest']}")


def _asked(found: dict[str, Any], value: str | None) -> str:
    """The answer as JSON text, once the person at the terminal has said yes. Raises Complaint for a no."""
    from placet_server.cli.approval import check_eligible

    print_question(found)
    check_eligible(found, "nothing was answered")
    text = _prompted(found) if value is None else _text_of(found, value)
    if not typer.confirm(f"Answer {escape(text)}?", err=True):
        raise Complaint("nothing was answered", ExitCode.INTERRUPTED)
    return text


def _prompted(found: dict[str, Any]) -> str:
    """Until it fits."""
    choices = found["input"].get("choices")
    while True:
        said = str(typer.prompt("Number" if choices else "Answer", err=True))
        if choices and said.isdecimal() and 1 <= int(said) <= len(choices):
            return json.dumps(choices[int(said) - 1], ensure_ascii=False)
        if choices:
            warn(f"say a number from 1 to {len(choices)}")
            continue
        try:
            return _text_of(found, said)
        except Complaint as error:
            warn(error.message)


def _text_of(found: dict[str, Any], value: str) -> str:
    """JSON text of an answer that fits. Raises Complaint."""
    asked = found["input"] or {}
    choices = asked.get("choices")
    is_read = value == "-" or value.startswith("@")
    text = payload_of(value).decode() if is_read else value
    answer_: Any
    if (not is_read and choices and value in choices) or (not is_read and _wants_text(asked)):
        answer_ = value
    else:
        try:
            answer_ = json.loads(text)
        except ValueError:
            answer_ = text.rstrip("\n")
    wrong = _violations(asked, answer_)
    if wrong:
        raise Complaint(f"the answer does not fit: {'; '.join(wrong)}", ExitCode.REFUSED)
    return json.dumps(answer_, ensure_ascii=False)


def _wants_text(asked: dict[str, Any]) -> bool:
    schema = asked.get("answer_schema")
    return (schema is None and "choices" not in asked) or (
        isinstance(schema, dict) and schema.get("type") == "string"
    )


def _violations(asked: dict[str, Any], answer_: Any) -> Sequence[str]:
    """What is wrong with it; nothing where the server is not installed, which checks it again anyway."""
    try:
        from placet_server.model.question import question_of
    except ModuleNotFoundError:
        return ()
    return [f"{each.field or '/'}: {each.description}" for each in question_of(asked).violations(answer_)]


def _voter(client: Client) -> str:
    return str(client.whoami().caller.subject)


def _shown(choice: Any) -> str:
    from placet_server.cli.input_tree import text_of

    return text_of(choice) if not isinstance(choice, dict | list) else escape(json.dumps(choice))
