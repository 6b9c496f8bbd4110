"""`placet ask`: ask an agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Inline, Json, Labels, Target, labels_of, seconds_of
from placet_server.cli.output import counted, pretty_json, print_document, print_line, say, warn

BOUNDS = ("turns", "calls", "equal_calls", "tokens", "cost_micros", "seconds")

if TYPE_CHECKING:
    from placet import Client
    from placet.agent import Budget, InlineAgent
    from placet.ask_requests import Reply
    from placet.requests import CallArguments, OnWait


def ask(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="Its name, for example shop.helper; none with --inline.")
    ],
    message: Annotated[
        str,
        typer.Argument(metavar="MESSAGE|-", help="What it is asked: text, or stdin.", show_default=False),
    ] = "",
    inline: Inline = "",
    argument: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="For a place in its instructions; may be given again."),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K=N",
            help="What this run may spend, within its agent's budget: turns, calls, tokens, cost_micros or seconds.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key again is the same run. Default: a fresh one."),
    ] = None,
    version: Annotated[str, typer.Option(help="This version instead of the current one.")] = "",
    timeout: Annotated[str, typer.Option(help="How long to wait: 30, 90s, 5m. The run goes on.")] = "5m",
    hold: Annotated[
        bool, typer.Option("--hold", help="If people have to say yes first: stay while they decide.")
    ] = False,
    stream: Annotated[
        bool,
        typer.Option("--stream/--no-stream", help="Tell what happens as it does; or only the answer."),
    ] = True,
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
      placet ask shop.helper - --no-stream --json < question.txt
      placet ask --inline helper.toml "Where is order A-1001?" --hold
    """
    from placet_server.cli.session import connect

    asked_agent, text = _who_and_what(agent, message, inline)
    seconds = seconds_of(timeout, "--timeout")
    on_wait: OnWait = "hold" if hold else "return"
    options: CallArguments = {"version": version, "labels": labels_of(label), "key": key, "on_wait": on_wait}
    asked = _Asked(asked_agent, text, _arguments(argument), budget_of(budget), seconds, on_wait, options)
    with connect(target) as client:
        try:
            return _listened(client, asked, is_json) if stream else _answered(client, asked, is_json)
        except KeyboardInterrupt:
            warn("interrupted: the run goes on without you; `placet ls` finds it")
            return ExitCode.INTERRUPTED
        except ValueError as error:
            raise Complaint(str(error)) from None


class _Asked(NamedTuple):
    agent: str | InlineAgent
    text: str
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
        return agent, sys.stdin.read() if message == "-" else message
    from placet_server.cli.inline_file import read_inline

    return read_inline(inline), sys.stdin.read() if agent == "-" else agent


def _answered(client: Client, asked: _Asked, is_json: bool) -> int:
    from placet_server.cli.call import patience

    with patience(asked.seconds):
        reply = client.ask(
            asked.agent,
            asked.text,
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
    run = client.ask_stream(
        asked.agent,
        asked.text,
        arguments=asked.arguments,
        budget=asked.budget,
        timeout=asked.seconds,
        **asked.options,
    )
    try:
        reply = listening.reply_of(run)
    except Left as left:
        if not left.action_id:
            raise KeyboardInterrupt from None
        return ExitCode.PENDING
    return tell_reply(reply, view.answer, print_line if is_json else None)


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
        warn(f"SUCCEEDED  run {reply.action_id}{f', {spent}' if spent else ''}{joined}")
    return ExitCode.WAITING if is_waiting else ExitCode.SUCCEEDED


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


def budget_of(texts: list[str] | None) -> Budget | None:
    """Raises Complaint for what bounds nothing."""
    from placet.agent import Budget

    if not texts:
        return None
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in BOUNDS or not (number.isascii() and number.isdecimal()) or int(number) == 0:
            raise Complaint(
                f"--budget is {text!r}; say --budget {BOUNDS[0]}=3, or one of {', '.join(BOUNDS)}"
            )
        found[name] = int(number)
    seconds = found.pop("seconds", None)
    return Budget(**found, active_time=seconds)


def _arguments(texts: list[str] | None) -> dict[str, str]:
    """Raises Complaint for what is not K=V."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Complaint(f"--argument is {text!r}; say --argument name=value")
        found[name] = value
    return found
