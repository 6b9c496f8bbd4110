"""`placet chat`: a conversation with an agent, line by line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.asking import Arguments, Budgets, InSession, Stream, arguments_of, budget_of
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode, code_of_error
from placet_server.cli.option import Inline, Json, Target, seconds_of
from placet_server.cli.output import pretty_json, print_line, warn

if TYPE_CHECKING:
    from placet import Budget, Client, InlineAgent
    from placet.ask_requests import Reply
    from placet.errors import PlacetError
    from placet.requests import OnWait
    from placet.v1.session_service_pb2 import Session
    from placet_server.cli.run_view import Listening, RunView

HELP, QUIT = "/help", "/quit"
HELP_TEXT = f"""\
{HELP}    these lines
{QUIT}    ends the chat, as the end of the input does; its session stays, for --session
(empty)  listens on to the run that is not over, if there is one
Ctrl-C   during an answer: leaves its run, which goes on then, or cancels it"""

LISTEN_ON = "an empty line listens on"

_Agent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="Its name, for example shop.helper; none with --inline, and needless with --session.",
        show_default=False,
    ),
]
_Hold = Annotated[
    bool | None,
    typer.Option(
        "--hold/--no-hold",
        help="If people have to say yes first: stay while they decide. Default: at a terminal.",
        show_default=False,
    ),
]


def chat(
    agent: _Agent = "",
    inline: Inline = "",
    session: InSession = "",
    argument: Arguments = None,
    budget: Budgets = None,
    timeout: Annotated[str, typer.Option(help="How long to wait for each answer: 30, 90s, 5m.")] = "5m",
    hold: _Hold = None,
    stream: Stream = True,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Talk with an agent: each line is a message, and its answer follows. The end of the input, or /quit, ends it.

    The agent knows what was said before in the session. Answers are told as `placet ask` tells them: at a terminal as
    they are said, with what the agent calls, and what it waits for with the command that decides it; once somebody has,
    the answer goes on. Ctrl-C asks whether to leave the run, which goes on then, or to cancel it. /help tells the rest.

    With --json each event is a document on a line, and after the events of a message comes one with `session_id`,
    `action` and `text`; with --no-stream there is only that. Read from a pipe, it ends at the first message that has no
    answer, with the exit code that `placet ask` has for it: also if people have to decide something first, unless
    --hold says to stay. A run of the session that is not over is listened to first. --argument and --budget are of
    each message.

    \b
    Examples:
      placet chat shop.helper
      placet chat --session 01a22d21
      placet chat desk.helper --argument customer=Ann --budget turns=5
      printf 'Where is A-1001?\\nRefund it.\\n' | placet chat shop.helper --no-stream --json
      placet chat --inline helper.toml
    """
    from placet.agent import INLINE_AGENT
    from placet_server.cli.session import connect
    from placet_server.cli.sessions import find_session

    if agent and inline:
        raise Complaint("say one agent: its name, or --inline FILE")
    if not (agent or inline or session):
        raise Complaint("say which agent: its name, or --inline FILE; or --session ID")
    seconds = seconds_of(timeout, "--timeout")
    read = _read(inline) if inline else None
    arguments, bounds = arguments_of(argument), budget_of(budget)
    is_person = sys.stdin.isatty()
    with connect(target) as client:
        if session:
            found = client.session(find_session(client, session))
        else:
            found = client.create_session(agent or INLINE_AGENT)
        talk = _Talk(
            client,
            read or agent or _agent_of(found),
            found.session_id,
            arguments=arguments,
            budget=bounds,
            seconds=seconds,
            holds=is_person if hold is None else hold,
            is_streamed=stream,
            is_json=is_json,
            is_person=is_person,
        )
        try:
            return _go_on(talk, is_begun=bool(session))
        except KeyboardInterrupt:
            who = f"--inline {inline} " if inline else f"{agent} " if agent else ""
            warn(f"interrupted; goes on with: placet chat {who}--session {found.session_id}")
            return ExitCode.INTERRUPTED


def _read(inline: str) -> InlineAgent:
    from placet_server.cli.inline_file import read_inline

    return read_inline(inline)


def _agent_of(session: Session) -> str:
    """Raises Complaint for one that is with no agent that has a name."""
    from placet.agent import INLINE_AGENT

    if session.agent == INLINE_AGENT:
        raise Complaint("it is a session with an agent in no manifest: say --inline FILE")
    if not session.agent:
        raise Complaint("it is a session with any agent: say which")
    return session.agent


def _go_on(talk: _Talk, *, is_begun: bool) -> ExitCode:
    """Ends with the input, and over a pipe with the first message that has no answer. Raises what `ask` does."""
    warn(f"session {talk.session_id}{f'; {HELP} says what to type' if talk.is_person else ''}")
    if is_begun and not talk.listen_on():
        return ExitCode.WAITING
    for line in _lines(is_person=talk.is_person):
        if line.strip() == HELP:
            warn(HELP_TEXT)
        elif not (talk.ask(line) if line.strip() else not talk.is_person or talk.listen_on()):
            return ExitCode.WAITING
    return ExitCode.SUCCEEDED


def _lines(*, is_person: bool) -> Iterator[str]:
    """What is said, with a prompt for people."""
    while True:
        if is_person:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line or line.strip() == QUIT:
            return
        yield line.rstrip("\r\n")


class _Talk:
    """One session, and whoever sits before it. What is not answered people are told, and can say something else."""

    def __init__(
        self,
        client: Client,
        agent: str | InlineAgent,
        session_id: str,
        *,
        arguments: dict[str, str],
        budget: Budget | None,
        seconds: float,
        holds: bool,
        is_streamed: bool,
        is_json: bool,
        is_person: bool,
    ) -> None:
        self.session_id = session_id
        self.is_person = is_person
        self._client = client
        self._agent = agent
        self._arguments = arguments
        self._budget = budget
        self._seconds = seconds
        self._on_wait: OnWait = "hold" if holds else "return"
        self._is_streamed = is_streamed
        self._is_json = is_json

    def ask(self, line: str) -> bool:
        """Whether the conversation goes on."""

        def hear(listening: Listening) -> Reply:
            run = self._client.ask_stream(
                self._agent,
                line,
                arguments=self._arguments,
                budget=self._budget,
                session=self.session_id,
                timeout=self._seconds,
                on_wait=self._on_wait,
            )
            return listening.reply_of(run)

        return self._told(hear)

    def listen_on(self) -> bool:
        """To the run that is not over, if there is one; as `ask`."""

        def hear(listening: Listening) -> Reply | None:
            active = self._client.session(self.session_id).active_action_id
            if not active:
                return None
            warn(f"run {active} is not over")
            return listening.joined(self._client.get(active))

        return self._told(hear)

    def _told(self, hear: Callable[[Listening], Reply | None]) -> bool:
        from placet.errors import PlacetError
        from placet_server.cli.run_view import Left, Listening, RunView

        view = RunView(
            self._client,
            is_json=self._is_json,
            tells_waits=self._on_wait == "hold",
            is_silent=not self._is_streamed,
        )
        try:
            reply = hear(Listening(self._client, view, seconds=self._seconds, on_wait=self._on_wait))
        except Left as left:
            if self.is_person and left.action_id:
                warn(LISTEN_ON)
                return True
            raise KeyboardInterrupt from None
        except PlacetError as error:
            if not self.is_person:
                raise
            view.warn(_complaint(error))
            if code_of_error(error) is ExitCode.PENDING:
                warn(LISTEN_ON)
            return True
        return reply is None or self._tell(reply, view) or self.is_person

    def _tell(self, reply: Reply, view: RunView) -> bool:
        """Whether it is an answer."""
        from placet_server.cli.call import tell_waiting
        from placet_server.cli.document import document_of

        found = document_of(reply.action)
        is_answer = bool(found["state"] != "WAITING")
        if self._is_json:
            print_line({"session_id": self.session_id, "action": found, "text": reply.text})
        elif is_answer:
            view.answer(reply.text or pretty_json(reply.output))
        else:
            tell_waiting(found, follow="resume")
        return is_answer


def _complaint(error: PlacetError) -> str:
    from placet_server.cli.failure import text_of_error

    return f"placet: {text_of_error(error, is_call=False, is_run=True)} [{int(code_of_error(error))}]"
