"""Policy sets ready to be asked. Everything here is in memory, and belongs to one event loop.

The operator's set comes first. Its forbids come before everything, its permits let nothing through by themselves: they
only add what they ask for. So no tenant can lose what the operator demands, or gain what it does not permit itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from placet_server.core.decision.policy_slice import NOT_PERMITTED, Answer, Question, Slice
from placet_server.model.approval_bounds import read_terms
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.policy import PolicySet, PolicyVerdict, joined
from placet_server.model.policy_schema import Offered
from placet_server.model.policy_text import parse_policies

REMEMBERED_MAX = 4096
SLICES_MAX = 4096


class NotCompiled(Exception):
    """A set that this release cannot read: nothing may be allowed by it."""


class CompiledSet:
    """One policy set. `revision` 0: the built-in one."""

    def __init__(self, owner: str, revision: int, document: PolicySet) -> None:
        """Takes its time: not on the event loop. Raises NotCompiled."""
        parsed = parse_policies(document.cedar)
        if parsed.problems:
            raise NotCompiled(parsed.problems[0].message)
        try:
            for text in (
                *(p.approval for p in parsed.policies if p.asks),
                *(o.approval for o in document.overlays if o.approval),
            ):
                read_terms(text)
        except TermsRefused as error:
            raise NotCompiled(str(error)) from error
        self.owner = owner
        self.revision = revision
        self.document = document
        self.policies = parsed.policies
        self._slices: dict[tuple[_Key, str], Slice] = {}

    async def slice_of(self, offered: Offered) -> Slice:
        """Of the policies that could apply to a capability."""
        # The operator's set is asked for all tenants, of which each has the capability in a manifest of its own.
        key = _key_of(offered.capability), offered.manifest
        found = self._slices.get(key)
        if found is None:
            found = await asyncio.to_thread(self._slice, offered)
            if len(self._slices) >= SLICES_MAX:
                self._slices.clear()
            self._slices[key] = found
        return found

    def _slice(self, offered: Offered) -> Slice:
        name = offered.capability.name
        overlays = [overlay for overlay in self.document.overlays if overlay.covers(name)]
        return Slice(self.owner, offered, self.policies, overlays)


class Decided(NamedTuple):
    """`is_lasting`: it holds for this caller and capability whatever the context is."""

    verdict: PolicyVerdict
    is_lasting: bool


class Rulebook:
    """What is in force for one tenant: the operator's set, if there is one, and its own."""

    def __init__(self, operator: CompiledSet | None, own: CompiledSet) -> None:
        self.operator = operator
        self.own = own
        self.fresh_until = 0.0
        self.remembers_until = 0.0
        self._remembered: dict[tuple[_Key, Caller], PolicyVerdict] = {}
        self._verdicts: dict[tuple[tuple[Slice, Answer], ...], PolicyVerdict] = {}

    @property
    def revisions(self) -> tuple[int, int]:
        """The operator's, 0 for none, and the own one, 0 for the built-in."""
        return 0 if self.operator is None else self.operator.revision, self.own.revision

    def known(self, capability: Capability, caller: Caller) -> PolicyVerdict | None:
        """The decision, if it is remembered and depends on nothing else."""
        return self._remembered.get((_key_of(capability), caller))

    async def decide(self, question: Question) -> Decided:
        sets = [self.own] if self.operator is None else [self.operator, self.own]
        answers: list[tuple[Slice, Answer]] = []
        is_lasting = True
        for each in sets:
            found = await each.slice_of(question.offered)
            answer, is_final = found.ask(question)
            is_lasting &= is_final
            answers.append((found, answer))
            if is_refusal(found, answer):
                break
        key = tuple(answers)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= REMEMBERED_MAX:
                self._verdicts.clear()
            verdict = self._verdicts[key] = _verdict(answers)
        return Decided(verdict, is_lasting)

    def forget(self) -> None:
        """Decisions; what they are made of stays."""
        self._remembered.clear()

    def remember(self, question: Question, decided: Decided) -> None:
        """Unless the decision depends on the context."""
        if decided.is_lasting:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[_key_of(question.offered.capability), question.caller] = decided.verdict


def is_refusal(asked: Slice, answer: Answer) -> bool:
    """The operator need not permit anything."""
    return bool(answer.problem) and not (asked.is_operators and answer.problem == NOT_PERMITTED)


def _verdict(answers: Sequence[tuple[Slice, Answer]]) -> PolicyVerdict:
    """Of the operator's set and the own one, or of the operator's alone, which refuses."""
    asked, last = answers[-1]
    if is_refusal(asked, last):
        return PolicyVerdict(
            allowed=False, problem=last.problem, policies=tuple(map(asked.named, last.policies))
        )
    # A permit of the operator's decides nothing but what it asks for.
    counting = [
        (each, policy)
        for each, answer in answers
        for policy in answer.policies
        if policy.asks or not each.is_operators
    ]
    policies = tuple(each.named(policy) for each, policy in counting)
    texts = {policy.approval for _, policy in counting if policy.asks}
    texts |= {overlay.approval for slice_, _ in answers for overlay in slice_.overlays if overlay.approval}
    approval = joined(tuple(sorted(texts)))
    if approval is None:
        return PolicyVerdict(allowed=False, problem="asks_too_much", policies=policies)
    return PolicyVerdict(allowed=True, policies=policies, approval=approval)


_Key = tuple[str, str, str]


def _key_of(capability: Capability) -> _Key:
    return capability.contract_digest, capability.name, capability.version
