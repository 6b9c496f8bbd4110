"""What to list, and a page of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState

PAGE_SIZE_DEFAULT = 50
PAGE_SIZE_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionQuery:
    """Members are joined by and, the elements of one member by or. Empty members match all."""

    capabilities: tuple[str, ...] = ()
    states: tuple[ActionState, ...] = ()
    requester: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    create_time_min_us: int | None = None
    create_time_max_us: int | None = None
    action_id_prefix: str = ""
    parent_id: str = ""
    root_id: str = ""
    queue: str = ""
    agent_runs: bool = False
    page_size: int = PAGE_SIZE_DEFAULT
    after_action_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Members are joined by and, the capabilities by or. Empty members match all."""

    capabilities: tuple[str, ...] = ()
    queue: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFilter:
    """Which events of a tenant. Members are joined by and, their elements by or, but for labels. Empty members match
    all. `types` as stored. `root_id`: of this action and all that it has called."""

    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    root_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPage:
    """`next_after_action_id` is empty on the last page.

    A page may be short of page_size and still have a next one.
    """

    actions: tuple[Action, ...]
    next_after_action_id: str = ""
