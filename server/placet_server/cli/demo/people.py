"""The part of those who say yes: a refund above a limit waits, for exactly itself, and never for who asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placet import Client, PlacetError, PolicySet
from placet.v1.decision_pb2 import ApprovalState
from placet_server.cli.complaint import Complaint
from placet_server.cli.demo.caller import Wish, ask
from placet_server.cli.demo.claim import Claims
from placet_server.cli.demo.stage import ROLE, Stage
from placet_server.cli.demo.teller import Teller
from placet_server.cli.exit_code import ExitCode

ASKS, FIRST, SECOND = "anna", "ben", "carl"
LIMIT_CENTS = 10_000
POLICIES = f"""\
@id("up-to-the-limit")
permit (principal, action, resource)
unless {{ context.input has amount_cents && context.input.amount_cents > {LIMIT_CENTS} }};

@id("above-the-limit")
@approval("2 of role:{ROLE}; ttl=1h")
permit (principal, action in [Action::"payments.goodwill", Action::"payments.reimburse"], resource)
when {{ context.input.amount_cents > {LIMIT_CENTS} }};
"""
GOODWILL = Wish(
    effect="IDEMPOTENT",
    capability="payments.goodwill",
    input={"order": "A-1002", "amount_cents": 24_000},
    key="goodwill-A-1002",
)
OTHER_AMOUNT = Wish(
    effect="IDEMPOTENT",
    capability="payments.goodwill",
    input={"order": "A-1002", "amount_cents": 99_000},
    key="goodwill-A-1002-more",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """What waits, and what a yes to it is bound to."""

    approval_id: str
    digest: str


def ask_above_the_limit(stage: Stage, teller: Teller, claims: Claims, client: Client) -> PendingApproval:
    """One of two people says yes; the other one is yet to."""
    teller.act(f"A refund above the limit: two of {ROLE} have to say yes. {ASKS} of {ROLE} asks.")
    teller.command("placet policy admit refunds.cedar")
    client.admit_policy_set(PolicySet("refunds", POLICIES))
    teller.outcome(POLICIES.split("\n\n")[1].rstrip())
    asked = _ask(stage, teller, claims, GOODWILL)
    own = decide(stage, teller, asked, ASKS)
    claims.add("who asks cannot say yes, whoever she is", seen=own, wanted="NOT_ELIGIBLE, requester")
    first = decide(stage, teller, asked, FIRST)
    claims.add("one yes of two runs nothing", seen=f"{first}, {_refunds(stage)}", wanted="PENDING, 1 refund")
    teller.aside("another amount is another request, and asks anew:")
    other = _ask(stage, teller, claims, OTHER_AMOUNT)
    borrowed = PendingApproval(approval_id=other.approval_id, digest=asked.digest)
    refused = decide(stage, teller, borrowed, FIRST)
    claims.add("a yes to one amount is none to another", seen=refused, wanted="STALE_DIGEST")
    return asked


def say_the_second_yes(
    stage: Stage, teller: Teller, claims: Claims, asked: Sequence[PendingApproval]
) -> None:
    states = [decide(stage, teller, each, SECOND) for each in asked]
    claims.add(
        "the second yes makes it ready", seen=", ".join(states), wanted=", ".join(["GRANTED"] * len(asked))
    )


def _ask(stage: Stage, teller: Teller, claims: Claims, wish: Wish) -> PendingApproval:
    client = stage.client(ASKS)
    teller.command(wish.command, ASKS)
    answer = ask(client, wish)
    teller.outcome(answer.text)
    if not answer.action_id:
        raise Complaint(f"it should wait: {answer.text}", ExitCode.FAILED)
    claims.add(f"{wish.input['amount_cents'] / 100:.2f} waits for people", seen=answer.kind, wanted="WAITING")
    approval = client.approval(client.get(answer.action_id).approval_id)
    return PendingApproval(approval_id=approval.approval_id, digest=approval.digest)


def decide(stage: Stage, teller: Teller, asked: PendingApproval, who: str) -> str:
    """The state of the approval then, or why the yes does not count."""
    teller.command(f"placet approve {asked.approval_id}@{asked.digest}", who)
    try:
        approval = stage.client(who).decide(asked.approval_id, "approve", digest=asked.digest)
    except PlacetError as error:
        teller.outcome(str(error))
        return ", ".join(filter(None, (error.reason, error.metadata.get("problem", ""))))
    state = ApprovalState.Name(approval.state).removeprefix("APPROVAL_STATE_")
    teller.outcome(f"{state}: still needed is {approval.missing}" if approval.missing else state)
    return state


def _refunds(stage: Stage) -> str:
    count = stage.counts()["refunds"]
    return f"{count} refund" if count == 1 else f"{count} refunds"
