"""The part of the agent: what it calls waits for people as any call does, and its run goes on after the crash."""

from __future__ import annotations

from placet import Client, PlacetError, TextDelta, ToolStarted
from placet.ask_requests import Reply
from placet_server.cli.complaint import Complaint
from placet_server.cli.demo.claim import Claims
from placet_server.cli.demo.people import ASKS, FIRST, PendingApproval, decide
from placet_server.cli.demo.stage import Stage
from placet_server.cli.demo.teller import Teller
from placet_server.cli.exit_code import ExitCode

AGENT, MESSAGE, KEY = "shop.helper", "Please reimburse A-1002.", "reimburse-A-1002"
COMMAND = f'placet ask {AGENT} "{MESSAGE}" --key {KEY}'
ASK_SECONDS = 40.0


def ask_an_agent(stage: Stage, teller: Teller, claims: Claims) -> PendingApproval:
    """One of two people says yes; the other one is yet to."""
    teller.act(
        f"{ASKS} asks an agent: a model in a loop, whose calls pass the same gates. This model needs no key."
    )
    client = stage.client(ASKS)
    reply = _ask(client, teller)
    waits = reply.action.outcome.waits
    if not waits:
        raise Complaint(f"the agent's call should wait: {reply.text}", ExitCode.FAILED)
    approval = client.approval(waits[0].approval_id)
    teller.outcome(f"WAITING  {approval.capability}, step {waits[0].step_path} of the run {reply.action_id}")
    claims.add(
        "what an agent calls waits for people, as any call does",
        seen=f"{approval.capability} waits at {waits[0].step_path}",
        wanted="payments.reimburse waits at turn/2/call/1",
    )
    asked = PendingApproval(approval_id=approval.approval_id, digest=approval.digest)
    decide(stage, teller, asked, FIRST)
    return asked


def hear_the_agent(stage: Stage, teller: Teller, claims: Claims) -> None:
    """After the crash: the run ends by itself, once it is known what became of its call."""
    teller.act(f"The agent's call is known to be done, too; its run goes on. {ASKS} asks for its answer.")
    client = stage.client(ASKS)
    reply = _ask(client, teller)
    turns = list(client.turns(reply.action_id))
    count = stage.counts()["reimbursements"]
    claims.add(
        "an agent's run survives the crash, and what it did happened once",
        seen=f"{reply.text} {count} reimbursement{'' if count == 1 else 's'}",
        wanted="Reimbursed 240.00 for A-1002. 1 reimbursement",
    )
    claims.add(
        "its model is asked once for each turn, whatever dies",
        seen=", ".join(str(turn.requests) for turn in turns),
        wanted="1, 1, 1",
    )


def _ask(client: Client, teller: Teller) -> Reply:
    """Told turn by turn, while the run says it."""
    teller.command(COMMAND, ASKS)
    said: dict[int, str] = {}
    try:
        with client.ask_stream(AGENT, MESSAGE, key=KEY, on_wait="return", timeout=ASK_SECONDS) as run:
            for event in run:
                match event:
                    case TextDelta(turn=turn, text=text):
                        said[turn] = said.get(turn, "") + text
                    case ToolStarted(turn=turn, tool=tool):
                        teller.outcome(f"{said.pop(turn, '')} [{tool}]".strip())
                    case _:
                        pass
            for text in said.values():
                teller.outcome(text)
            return run.reply()
    except PlacetError as error:
        raise Complaint(f"the agent gave no answer: {error}", ExitCode.FAILED) from None
