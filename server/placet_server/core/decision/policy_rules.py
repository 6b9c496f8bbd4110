"""Policy sets ready to be asked. Everything here is in memory, and belongs to one event loop.

The operator's set comes first. Its forbids come before everything, its permits let nothing through by themselves: they
only add what they ask for. So no tenant can lose what the operator demands, or gain what it does not permit itself."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from placet_server.core.decision.policy_slice import NOT_PERMITTED, Question, Slice
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.policy import Deciding, PolicySet, PolicyVerdict
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
        self.owner = owner
        self.revision = revision
        self.document = document
        self.policies = parsed.policies
        self._slices: dict[_Key, Slice] = {}

    async def slice_of(self, offered: Offered) -> Slice:
        """Of the policies that could apply to a capability."""
        key = _key_of(offered.capability)
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
        self._remembered: dict[tuple[_Key, Caller], PolicyVerdict] = {}
        # Of each verdict one object, so that its digest is made once.
        self._verdicts: dict[PolicyVerdict, PolicyVerdict] = {}

    @property
    def revisions(self) -> tuple[int, int]:
        """The operator's, 0 for none, and the own one, 0 for the built-in."""
        return 0 if self.operator is None else self.operator.revision, self.own.revision

    def known(self, capability: Capability, caller: Caller) -> PolicyVerdict | None:
        """The decision, if it is remembered and depends on nothing else."""
        return self._remembered.get((_key_of(capability), caller))

    async def decide(self, question: Question) -> Decided:
        sets = [self.own] if self.operator is None else [self.operator, self.own]
        slices = [await each.slice_of(question.offered) for each in sets]
        deciding: list[Deciding] = []
        is_lasting = True
        for each in slices:
            answer, is_final = each.ask(question)
            is_lasting &= is_final
            if answer.problem and not (each.is_operators and answer.problem == NOT_PERMITTED):
                named = tuple(map(each.named, answer.policies))
                refused = PolicyVerdict(allowed=False, problem=answer.problem, policies=named)
                return Decided(self._one(refused), is_lasting)
            # A permit of the operator's decides nothing but what it asks for.
            counting = [p for p in answer.policies if p.approval or not each.is_operators]
            deciding += map(each.named, counting)
        return Decided(self._one(PolicyVerdict(allowed=True, policies=tuple(deciding))), is_lasting)

    def remember(self, question: Question, decided: Decided) -> None:
        """Unless the decision depends on the context."""
        if decided.is_lasting:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[_key_of(question.offered.capability), question.caller] = decided.verdict

    def _one(self, verdict: PolicyVerdict) -> PolicyVerdict:
        if len(self._verdicts) >= REMEMBERED_MAX:
            self._verdicts.clear()
        return self._verdicts.setdefault(verdict, verdict)


_Key = tuple[str, str, str]


def _key_of(capability: Capability) -> _Key:
    return capability.contract_digest, capability.name, capability.version
