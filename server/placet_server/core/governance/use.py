"""What a built-in capability that governs is made of."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from placet_server.model.action import Action
from placet_server.model.caller import Caller

# As JSON objects; the input schemas say what they hold.
Members = dict[str, Any]


class Proposal(NamedTuple):
    """What the server has found out about a request. `found`: members of the input that no caller may give. `basis`:
    what makes the same request another one later on, for a key where the caller has none.
    """

    found: Members
    basis: str = ""


class Use(Protocol):
    """One capability. `scope`: what its RPC needs, too. `asked`: the members that a caller gives."""

    scope: str
    asked: frozenset[str]

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        """Raises what is wrong with it as things stand. Changes nothing."""

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        """Does exactly what was proposed; the output. Raises what has become wrong with it since, and LeaseLost. Not
        called again once `note` has said that it is done; what changes in more than one tx knows by itself what is.
        """
