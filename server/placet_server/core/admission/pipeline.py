"""The gates, in their order. Each is one function in a file of its own; none writes anything, but that a refusal by
policies leaves a row that explains it.

    identity, replay and durability → capability → input → contract → credential → policy → key → session → quota

Identity is the transport's (`rpc/identity`): no gate reads it from the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from placet.app import Tool
from placet_server.core.admission.contract import Clocks, check_contract
from placet_server.core.admission.credential import check_credential
from placet_server.core.admission.input import check_input
from placet_server.core.admission.key import Key, Known, bind_key, meet_known
from placet_server.core.admission.message import check_time
from placet_server.core.admission.session_gate import check_session
from placet_server.core.decision.policy_slice import Question
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import now_us
from placet_server.model.action import Invocation, Message
from placet_server.model.approval import Terms, join
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.durability import DurabilityClass
from placet_server.model.errors import Draining, PlacetError
from placet_server.model.gate_errors import DurabilityUnavailable, HandlerNotFound
from placet_server.model.json_text import CanonicalJson
from placet_server.model.outcome import Outcome, OutcomeKind
from placet_server.model.policy import PolicyVerdict
from placet_server.model.policy_schema import Offered
from placet_server.model.question import is_answerable, question_of
from placet_server.store import action as actions


class Call(NamedTuple):
    """One request to run something. `time_left_seconds` is what the RPC deadline leaves; None without one."""

    caller: Caller
    invocation: Invocation
    time_left_seconds: float | None = None
    on_admitted: Callable[[str], None] | None = None
    trace: Mapping[str, str] = MappingProxyType({})
    message: Message | None = None


class Checked(NamedTuple):
    """A call that every gate let pass. `tool` None: it is submitted here and runs elsewhere. `terms`: who has to say
    yes first; None: nobody.
    """

    call: Call
    capability: Capability
    tool: Tool | None
    input: CanonicalJson
    clocks: Clocks
    key: Key | None
    verdict: PolicyVerdict

    @property
    def terms(self) -> Terms | None:
        """Who has to say yes first; None: nobody."""
        is_question = self.capability.kind is CapabilityKind.HUMAN
        own = question_of(self.input.value).terms if is_question else self.capability.contract.approval
        asked = self.verdict.terms
        if own is None or asked is None:
            return own or asked
        return join(own, asked)


async def pass_gates(
    kernel: Kernel, call: Call, *, anywhere: bool = False, against_quota: bool = True
) -> Checked:
    """`check`, with what is due to a refusal: it is counted, and its outcome says that nothing was stored. Raises
    Draining, too, and QuotaExceeded.
    """
    try:
        if kernel.is_draining:
            raise Draining()
        if call.message is not None:
            await check_time(kernel.journal, call.message, kernel.message_skew_seconds)
        checked = await check(kernel, call, anywhere=anywhere)
        if kernel.quotas is not None and against_quota:
            await kernel.quotas.check(call.caller.tenant)
        return checked
    except PlacetError as error:
        kernel.engine.observer.refused(error.reason)
        if error.is_refusal:
            error.outcome = Outcome(kind=OutcomeKind.REFUSED, reason=error.reason)
        raise


async def check(
    kernel: Kernel, call: Call, *, anywhere: bool = False, needs_key: bool = True, parent: str = ""
) -> Checked:
    """Raises the refusal of the first gate that says no. `anywhere`: it need not run here. `needs_key` False: something
    else ties its repeats together. `parent`: the capability that calls it.
    """
    invocation = call.invocation
    if invocation.require_durability is not None:
        _check_durability(kernel, invocation.require_durability)
    resolved = await kernel.catalog.resolve(
        call.caller.tenant, invocation.capability, invocation.version or None, anywhere=anywhere
    )
    capability = resolved.capability
    tool = kernel.engine.handlers.find_for(capability, call.caller.tenant)
    if tool is None and not anywhere:
        raise HandlerNotFound(capability=capability.name, version=capability.version)
    words_bytes_max = 0
    if capability.kind is CapabilityKind.AGENT:
        words_bytes_max = kernel.engine.handlers.programs.words_bytes_max(capability)
    canonical = check_input(capability, invocation.input_json, words_bytes_max=words_bytes_max)
    clocks = check_contract(capability, invocation, call.time_left_seconds, needs_key=needs_key)
    check_credential(capability, call.caller)
    if capability.name in kernel.governor.governed:
        prepared = await kernel.governor.prepare(call, capability, canonical, parent)
        canonical = prepared.input
        invocation = replace(invocation, idempotency_key=prepared.idempotency_key)
        call = call._replace(invocation=invocation)
    verdict = kernel.policies.known(capability, call.caller)
    if verdict is None or not verdict.allowed:
        offered = Offered(capability=capability, manifest=resolved.manifest)
        question = Question(call.caller, offered, canonical.value, invocation.labels, parent)
        verdict = await kernel.policy_gate.check(question, canonical)
    key = bind_key(capability, call.caller, invocation.idempotency_key)
    if capability.kind is CapabilityKind.AGENT:
        await _check_opens(kernel, call, capability, canonical, key)
    checked = Checked(call, capability, tool, canonical, clocks, key, verdict)
    if invocation.session is not None:
        await check_session(kernel.journal, call.caller, invocation.session, capability)
    if capability.kind is CapabilityKind.HUMAN:
        await _check_answerable(kernel, checked, resolved.manifest, parent)
    return checked


async def _check_opens(
    kernel: Kernel, call: Call, capability: Capability, canonical: CanonicalJson, key: Key | None
) -> None:
    """What cannot open is told now: nobody says yes to it first, and no key is spent by it. What the key has begun
    before stays as it is, whatever is missing by now.
    """
    journal = kernel.journal
    try:
        await kernel.engine.handlers.programs.check(capability, call.caller.tenant, canonical.value)
    except PlacetError:
        if key is None:
            raise
        async with journal.pool.connection() as connection:
            found = await actions.get_by_key_digests(connection, [key.digest])
        digest = canonical.digest.hex()
        if (
            not found
            or meet_known(found[0], call.invocation, digest, await now_us(journal)) is Known.TAKE_OVER
        ):
            raise


async def _check_answerable(kernel: Kernel, checked: Checked, manifest: str, parent: str) -> None:
    """Whether one person can be all whom the question and the policies ask for. Raises PolicyRefused."""
    caller, terms = checked.call.caller, checked.terms
    assert terms is not None, "a question has its own"
    if is_answerable(terms, {caller.subject, *(each.subject for each in caller.delegation)}):
        return
    offered = Offered(capability=checked.capability, manifest=manifest)
    labels = checked.call.invocation.labels
    question = Question(caller, offered, checked.input.value, labels, parent)
    raise await kernel.policy_gate.unanswerable(question, checked.input, checked.verdict)


def _check_durability(kernel: Kernel, required: DurabilityClass) -> None:
    if not kernel.journal.durability.keeps(required):
        raise DurabilityUnavailable(required=_word(required), actual=_word(kernel.journal.durability))


def _word(durability: DurabilityClass) -> str:
    """As the contract names it."""
    return durability.name.removeprefix("DURABLE_")
