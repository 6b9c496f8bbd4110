"""The story, act by act. What is claimed is counted at the provider, never taken from our own word."""

from __future__ import annotations

import time
from collections.abc import Sequence

from placet import Client
from placet_server.cli.complaint import Complaint
from placet_server.cli.demo.agent import ask_an_agent, hear_the_agent
from placet_server.cli.demo.caller import Answer, Waiting, Wish, answer_of, ask
from placet_server.cli.demo.claim import Claims
from placet_server.cli.demo.people import (
    ASKS,
    GOODWILL,
    PendingApproval,
    ask_above_the_limit,
    say_the_second_yes,
)
from placet_server.cli.demo.stage import APPS, POLL_SECONDS, Stage
from placet_server.cli.demo.teller import Teller
from placet_server.cli.exit_code import ExitCode

BEGIN_SECONDS = 15.0
ANSWER_SECONDS = 40.0
HEAL_SECONDS = 30.0

REFUND = Wish(
    effect="IDEMPOTENT",
    capability="payments.refund",
    input={"order": "A-1001", "amount": "19.90"},
    key="refund-A-1001",
)
OTHER_INPUT = Wish(
    effect="IDEMPOTENT",
    capability="payments.refund",
    input={"order": "A-1001", "amount": "199.00"},
    key="refund-A-1001",
)
EXPORT = Wish(effect="READ", capability="reports.export", input={"pause_seconds": 0.5}, key="export-today")
SECOND_REFUND = Wish(
    effect="IDEMPOTENT",
    capability="payments.refund",
    input={"order": "A-1003", "amount": "7.50"},
    key="refund-A-1003",
)
CHARGE = Wish(
    effect="RECONCILABLE",
    capability="payments.charge",
    input={"order": "A-1002", "amount": "240.00"},
    key="charge-A-1002",
)
MESSAGE = Wish(
    effect="UNSAFE",
    capability="messages.send",
    input={"to": "bob@example.com", "text": "Your order is on its way."},
    key="message-A-1002",
)
QUEUED_EXPORT = Wish(effect="READ", capability="reports.export", input={}, key="export-tonight")
INTERRUPTED = (EXPORT, SECOND_REFUND, CHARGE, MESSAGE)
REPEATABLE = ("READ", "IDEMPOTENT")
# After the crash nothing may be added to this.
COUNTS_AT_CRASH = {"refunds": 3, "charges": 1, "reimbursements": 1, "messages": 1}
HELD_AT_CRASH = 5
SAME = "same action and output"
SERVE = f"placet serve {' '.join(f'--app {app}' for app in APPS)}"


def tell(stage: Stage, teller: Teller) -> Claims:
    """Raises Complaint if the stage fails; a claim that does not hold is no exception."""
    claims = Claims()
    teller.act("A server on an empty Postgres, and a payment provider that counts what it is made to do.")
    teller.command(SERVE)
    teller.outcome(f"ready on {stage.start_server()}")
    client = stage.client()
    first = _refund_once(stage, teller, claims, client)
    asked = ask_above_the_limit(stage, teller, claims, client), ask_an_agent(stage, teller, claims)
    callers = _crash(stage, teller, claims, asked)
    answers = _recover(stage, teller, claims, callers)
    _finish(stage, teller, claims, answers)
    hear_the_agent(stage, teller, claims)
    _repeat(stage, teller, claims, answers)
    _look_back(teller, claims, stage.client(), first)
    return claims


def _refund_once(stage: Stage, teller: Teller, claims: Claims, client: Client) -> Answer:
    teller.act("One key, one effect.")
    first = _call(teller, client, REFUND)
    seen = f"{first.ending}, {_refunds(stage)}"
    claims.add("a refund is made once", seen=seen, wanted="SUCCEEDED, 1 refund")
    again = _call(teller, client, REFUND)
    claims.add(
        "the same key gives the same result, and no second effect",
        seen=f"{_compared(again, first)}, {_refunds(stage)}",
        wanted=f"{SAME}, 1 refund",
    )
    other = _call(teller, client, OTHER_INPUT)
    claims.add(
        "other input under that key is refused",
        seen=f"{other.reason}, {_refunds(stage)}",
        wanted="IDEMPOTENCY_CONFLICT, 1 refund",
    )
    teller.aside(f"the provider counts {_told(stage.counts())}")
    return first


def _crash(stage: Stage, teller: Teller, claims: Claims, asked: Sequence[PendingApproval]) -> list[Waiting]:
    teller.act("The provider does what it is told, but its answers are delayed. Four callers wait.")
    stage.hold_answers()
    callers = []
    for wish in INTERRUPTED:
        teller.command(f"{wish.command} &")
        callers.append(Waiting(stage.client(), wish))
    teller.act(
        "Meanwhile what is above the limit gets its second yes, and the server runs it: the agent's call, too."
    )
    say_the_second_yes(stage, teller, claims, asked)
    end = time.monotonic() + BEGIN_SECONDS
    while stage.held() < HELD_AT_CRASH or not callers[0].wait_until_begun(0):
        if time.monotonic() > end:
            raise Complaint("the calls did not reach the provider in time", ExitCode.UNAVAILABLE)
        time.sleep(POLL_SECONDS)
    teller.act("Somebody leaves work for tonight, and does not wait for it.")
    teller.command(QUEUED_EXPORT.command.replace("placet call", "placet submit"))
    stage.client().submit(QUEUED_EXPORT.capability, QUEUED_EXPORT.input, key=QUEUED_EXPORT.key)
    teller.act("Every effect has happened, no answer has arrived. Now the server dies.")
    teller.command(f"kill -9 {stage.server_pid}")
    stage.kill_server()
    stage.release_answers()
    counts = stage.counts()
    teller.aside(f"the provider counts {_told(counts)}; nobody told the server")
    claims.add("at the crash the effects had happened", seen=_told(counts), wanted=_told(COUNTS_AT_CRASH))
    return callers


def _recover(stage: Stage, teller: Teller, claims: Claims, callers: list[Waiting]) -> list[Answer]:
    teller.act("It comes back on the same data. The callers still wait; their SDK sends the same keys again.")
    teller.command(SERVE)
    teller.outcome(f"ready on {stage.start_server()}")
    answers = []
    for caller in callers:
        answer = caller.answer(ANSWER_SECONDS)
        if answer is None:
            raise Complaint(f"no answer to {caller.wish.command}", ExitCode.PENDING)
        answers.append(answer)
        teller.aside(f"{caller.wish.effect} {caller.wish.capability}, key {caller.wish.key}")
        teller.outcome(answer.text)
        _claim_ending(claims, caller.wish, answer)
    teller.aside(f"the provider counts {_told(stage.counts())}")
    counts = stage.counts()
    claims.add("the crash cost no effect and added none", seen=_told(counts), wanted=_told(COUNTS_AT_CRASH))
    return answers


def _claim_ending(claims: Claims, wish: Wish, answer: Answer) -> None:
    seen = f"{answer.ending}, attempt {answer.attempt}"
    if wish is CHARGE:
        # Not known, or by now known already: what it comes to is claimed later.
        return
    if wish.effect in REPEATABLE:
        text, wanted = "repeated under its key, and done", "SUCCEEDED, attempt 2"
    else:
        text, wanted = "not repeated, and said to be not known", "AMBIGUOUS, effect UNKNOWN, attempt 1"
    claims.add(f"{wish.effect}: {text}", seen=seen, wanted=wanted)


def _finish(stage: Stage, teller: Teller, claims: Claims, answers: list[Answer]) -> None:
    """What the server does by itself; the answer of the charge becomes what that comes to."""
    teller.act("The server asks the provider what became of the charge, and does what nobody waits for.")
    client = stage.client()
    charge = _until_known(client, CHARGE)
    teller.command(f"placet show {charge.action_id}")
    teller.outcome(charge.text)
    claims.add(
        "RECONCILABLE: not repeated, looked up at the provider, and known to be done",
        seen=f"{charge.ending}, attempt {charge.attempt}, {_told(stage.counts())}",
        wanted=f"SUCCEEDED, attempt 1, {_told(COUNTS_AT_CRASH)}",
    )
    answers[INTERRUPTED.index(CHARGE)] = charge
    goodwill = _until_known(stage.client(ASKS), GOODWILL)
    teller.command(f"placet show {goodwill.action_id}")
    teller.outcome(goodwill.text)
    claims.add(
        "what people said yes to survives the crash, asks nobody again, and happens once",
        seen=f"{goodwill.ending}, attempt {goodwill.attempt}, {_told(stage.counts())}",
        wanted=f"SUCCEEDED, attempt 2, {_told(COUNTS_AT_CRASH)}",
    )
    export = _until_known(client, QUEUED_EXPORT)
    teller.command(f"placet show {export.action_id}")
    teller.outcome(export.text)
    claims.add("a queued export survives the crash", seen=export.ending, wanted="SUCCEEDED")


def _until_known(client: Client, wish: Wish) -> Answer:
    """As it stands once it has succeeded, or at the end of our patience."""
    end = time.monotonic() + HEAL_SECONDS
    while True:
        answer = answer_of(client.get_by_key(wish.capability, wish.key))
        if answer.kind == "SUCCEEDED" or time.monotonic() > end:
            return answer
        time.sleep(POLL_SECONDS)


def _repeat(stage: Stage, teller: Teller, claims: Claims, before: list[Answer]) -> None:
    teller.act("Everybody asks again, with the same key.")
    client = stage.client()
    answers = [_call(teller, client, wish) for wish in INTERRUPTED]
    other = [text for text in map(_compared, answers, before) if text != SAME]
    claims.add("asking again gives each the same answer", seen="; ".join(other) or SAME, wanted=SAME)
    counts = stage.counts()
    teller.aside(f"the provider counts {_told(counts)}")
    claims.add("asking again has no effect", seen=_told(counts), wanted=_told(COUNTS_AT_CRASH))


def _look_back(teller: Teller, claims: Claims, client: Client, first: Answer) -> None:
    teller.act("Nothing is lost, and what is not known is listed for whoever can find out.")
    teller.command("placet ls --state ambiguous")
    found = sorted((action.capability, action.action_id) for action in client.list(states=["ambiguous"]))
    teller.outcome("\n".join(f"{action_id}  {name}" for name, action_id in found) or "no such actions")
    claims.add(
        "what is not known is listed, and nothing else",
        seen=", ".join(name for name, _ in found),
        wanted=MESSAGE.capability,
    )
    teller.command(f"placet show {first.action_id}")
    kept = answer_of(client.get(first.action_id))
    teller.outcome(kept.text)
    claims.add("what was answered before the crash still stands", seen=_compared(kept, first), wanted=SAME)


def _call(teller: Teller, client: Client, wish: Wish) -> Answer:
    teller.command(wish.command)
    answer = ask(client, wish)
    teller.outcome(answer.text)
    return answer


def _refunds(stage: Stage) -> str:
    count = stage.counts()["refunds"]
    return "1 refund" if count == 1 else f"{count} refunds"


def _compared(answer: Answer, earlier: Answer) -> str:
    if (answer.action_id, answer.kind, answer.output) == (earlier.action_id, earlier.kind, earlier.output):
        return SAME
    return f"{answer.ending}, action {answer.action_id}"


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in counts.items())
