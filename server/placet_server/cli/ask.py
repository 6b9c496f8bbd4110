"""`placet ask`: ask an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from placet_server.cli.asking import (
    Arguments,
    Budgets,
    Busy,
    Detach,
    Files,
    Hold,
    InSession,
    Key,
    Stream,
    arguments_of,
    budget_of,
    parts_of,
    text_of,
)
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Inline, Json, Labels, Target, labels_of, seconds_of
from placet_server.cli.output import counted, pretty_json, print_document, print_line, say, warn

if TYPE_CHECKING:
    from placet import Client, RunStream
    from placet.agent import Budget, InlineAgent
    from placet.ask_requests import Message, Reply
    from placet.requests import CallArguments, OnBusy, OnWait

_Agent = Annotated[
    str, typer.Argument(metavar="AGENT", help="Its name, for example shop.helper; none with --inline.")
]
_Message = Annotated[
    str, typer.Argument(metavar="MESSAGE|-", help="What it is asked: text, or stdin.", show_default=False)
]


def ask(
    agent: _Agent,
    message: _Message = "",
    inline: Inline = "",
    file: Files = None,
    argument: Arguments = None,
    budget: Budgets = None,
    session: InSession = "",
    on_busy: Busy = "refuse",
    key: Key = None,
    version: Annotated[str, typer.Option(help="This version instead of the current one.")] = "",
    timeout: Annotated[str, typer.Option(help="How long to wait: 30, 90s, 5m. The run goes on.")] = "5m",
    hold: Hold = False,
    detach: Detach = False,
    stream: Stream = True,
    label: Labels = None,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Ask an agent, and listen to its answer. The exit code says how its run ended.

    The answer comes on stdout, at a terminal while it is said; what the agent calls and waits for on stderr. Ctrl-C
    asks whether to leave the run, which goes on then, or to cancel it. With --json each event is a document on a line,
    the last one what became of the run; with --no-stream there is only that.

    If people have to decide something first, this tells what, and ends; the run goes on once they have. The same
    command with the same --key, or `placet resume`, then has the answer.

    \b
    Examples:
      placet ask shop.helper "Where is order A-1001?"
      placet ask shop.helper "Refund A-1001, and tell the customer" --key refund-A-1001
      placet ask shop.helper "Refund A-1001" --hold --timeout 1h
      placet ask shop.helper "Where is order A-1001?" --budget turns=3 --budget tokens=20000
      placet ask shop.helper "What is on this receipt?" --file receipt.png
      placet ask shop.helper "Refund A-1003" --session 01a22d21 --detach
      placet ask shop.helper - --no-stream --json < question.txt
      placet ask --inline helper.toml "Where is order A-1001?" --hold
    """
    from placet_server.cli.session import connect
    from placet_server.cli.sessions import find_session

    if detach and hold:
        raise Complaint("--detach and --hold exclude each other; `placet resume` listens to a detached run")
    asked_agent, text = _who_and_what(agent, message, inline)
    seconds = seconds_of(timeout, "--timeout")
    on_wait: OnWait = "hold" if hold else "return"
    options: CallArguments = {"version": version, "labels": labels_of(label), "key": key, "on_wait": on_wait}
    if session:
        options["on_busy"] = _on_busy(on_busy)
    asked = _Asked(
        asked_agent,
        parts_of(text, file),
        arguments_of(argument),
        budget_of(budget),
        seconds,
        on_wait,
        options,
    )
    with connect(target) as client:
        try:
            if session:
                options["session"] = find_session(client, session)
            run: Callable[..., int] = _detached if detach else _listened if stream else _answered
            return run(client, asked, is_json)
        except KeyboardInterrupt:
            warn("interrupted: the run goes on without you; `placet ls` finds it")
            return ExitCode.INTERRUPTED
        except ValueError as error:
            raise Complaint(str(error)) from None


_ON_BUSY: dict[str, OnBusy] = {
    "refuse": "refuse",
    "queue": "queue",
    "cancel_previous": "cancel_previous",
}


class _Asked(NamedTuple):
    agent: str | InlineAgent
    message: Message
    arguments: dict[str, str]
    budget: Budget | None
    seconds: float
    on_wait: OnWait
    options: CallArguments


def _who_and_what(agent: str, message: str, inline: str) -> tuple[str | InlineAgent, str]:
    """The only argument beside --inline is the message. Raises Complaint for too many, or too few."""
    if bool(inline) == bool(message):
        raise Complaint(
            "--inline says the agent: say the message alone" if inline else "say what it is asked"
        )
    if not inline:
        return agent, text_of(message)
    from placet_server.cli.inline_file import read_inline

    return read_inline(inline), text_of(agent)


def _answered(client: Client, asked: _Asked, is_json: bool) -> int:
    from placet_server.cli.call import patience

    with patience(asked.seconds):
        reply = client.ask(
            asked.agent,
            asked.message,
            arguments=asked.arguments,
            budget=asked.budget,
            timeout=asked.seconds,
            **asked.options,
        )
    return tell_reply(reply, say, print_document if is_json else None, attached=reply.attached)


def _listened(client: Client, asked: _Asked, is_json: bool) -> int:
    from placet_server.cli.run_view import Left, Listening, RunView

    view = RunView(client, is_json=is_json, tells_waits=asked.on_wait == "hold")
    listening = Listening(client, view, seconds=asked.seconds, on_wait=asked.on_wait)
    try:
        reply = listening.reply_of(_stream(client, asked))
    except Left as left:
        if not left.action_id:
            raise KeyboardInterrupt from None
        return ExitCode.PENDING
    return tell_reply(reply, view.answer, print_line if is_json else None)


def _detached(client: Client, asked: _Asked, is_json: bool) -> int:
    from placet_server.cli.call import patience, tell_waiting
    from placet_server.cli.document import document_of

    asked.options["on_caller_gone"] = "detach"
    with _stream(client, asked) as run:
        # The first event says that it is stored; what comes after is for whoever listens.
        with patience(asked.seconds):
            next(run, None)
        action_id, cursor = run.action_id, run.cursor
    if is_json:
        print_document({"action_id": action_id, "cursor": cursor})
        return ExitCode.SUCCEEDED
    found = document_of(client.get(action_id))
    if found["state"] == "WAITING":
        tell_waiting(found, follow="resume")
        return ExitCode.SUCCEEDED
    say(action_id)
    warn(f"stored, and goes on without you: placet resume {action_id}")
    return ExitCode.SUCCEEDED


def _stream(client: Client, asked: _Asked) -> RunStream:
    return client.ask_stream(
        asked.agent,
        asked.message,
        arguments=asked.arguments,
        budget=asked.budget,
        timeout=asked.seconds,
        **asked.options,
    )


def _on_busy(word: str) -> OnBusy:
    if word not in _ON_BUSY:
        raise Complaint(f"--on-busy is {word!r}; say {', '.join(_ON_BUSY)}")
    return _ON_BUSY[word]


def tell_reply(
    reply: Reply,
    answer: Callable[[str], None],
    document: Callable[[Any], None] | None,
    *,
    attached: bool | None = None,
) -> int:
    """`document`: what prints one, for who wants that. `attached`: None if that is not known."""
    from placet_server.cli.call import tell_waiting
    from placet_server.cli.document import document_of

    found = document_of(reply.action)
    is_waiting = found["state"] == "WAITING"
    if document is not None:
        told = {"action": found, "text": reply.text}
        document(told if attached is None else {**told, "attached": attached})
    elif is_waiting:
        tell_waiting(found, follow="resume")
    else:
        answer(reply.text or pretty_json(reply.output))
        spent = spent_line(found["usage"])
        joined = ", joined by its key" if attached else ""
        warn(f"SUCCEEDED  run {reply.action_id}{f', {spent}' if spent else ''}{doubt_of(found)}{joined}")
    return ExitCode.WAITING if is_waiting else ExitCode.SUCCEEDED


def doubt_of(found: dict[str, Any]) -> str:
    """Of an ended run's document: something that it called may have happened."""
    is_unknown = (found["outcome"] or {}).get("effect") == "UNKNOWN"
    return ", effect UNKNOWN when it ended: placet ambiguous" if is_unknown else ""


def spent_line(usage: dict[str, Any] | None) -> str:
    """Of an action's document; empty for what is no run."""
    if usage is None:
        return ""
    return f"{counted(usage['turns'], 'turn')}, {counted(usage['calls'], 'call')}, {tokens_line(usage)}"


def tokens_line(usage: dict[str, Any]) -> str:
    """And what they cost."""
    told = f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out"
    cost = cost_text(usage)
    return f"{told}, {cost}" if cost else told


def cost_text(usage: dict[str, Any]) -> str:
    """Empty where nothing is known of it."""
    if not usage["cost_micros"]:
        return ""
    return f"{'' if usage['cost_known'] else 'at least '}{usage['cost_micros'] / 1_000_000:.4f}"


def turn_line(turn: dict[str, Any]) -> str:
    """Of a turn's document, on one line."""
    told = [f"turn    {turn['turn']}", counted(turn["requests"], "request")]
    if usage := turn["usage"]:
        told.append(f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out")
    if turn["purpose"] not in ("", "answer"):
        told.append(turn["purpose"])
    if turn["failure"]:
        told.append(f"no answer: {turn['failure']}")
    return "  ".join([*told, *(call["tool"] for call in turn["calls"])])
