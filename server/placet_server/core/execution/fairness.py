"""Whose work is taken from the queues next. Pure: what waits and what runs in, how much of which line out.

Between tenants a slot goes to who has the fewest, what runs counted in: so long work of one tenant cannot come to hold
every slot, as it would if tenants merely took turns, and ten thousand actions of one delay the ten of another by no
more than half the slots do. Among equals tenants take turns by name, so that each is reached however many there are.

Within a tenant better priority goes first, from whichever queue; lines whose first are equal share."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from placet_server.model.line import PRIORITY_LAST, ReadyLine, Share


def share_out(
    lines: Sequence[ReadyLine], free: int, after_tenant: str, running: Mapping[str, int]
) -> tuple[list[Share], str]:
    """How many of each line may be claimed, together at most `free`; and the tenant after whom the next turn begins.

    `running`: how many slots each tenant has now.
    """
    by_tenant: dict[str, list[ReadyLine]] = {}
    for ready in lines:
        by_tenant.setdefault(ready.line.tenant, []).append(ready)
    if not by_tenant or free <= 0:
        return [], after_tenant
    turns = _turns(sorted(by_tenant), after_tenant)
    given = _divide(turns, free, running)
    shares = [
        share for tenant in turns if given[tenant] for share in _of_tenant(by_tenant[tenant], given[tenant])
    ]
    return shares, next((t for t in reversed(turns) if given[t]), after_tenant)


def _turns(tenants: list[str], after_tenant: str) -> list[str]:
    begin = bisect_right(tenants, after_tenant)
    return tenants[begin:] + tenants[:begin]


def _divide(turns: list[str], free: int, running: Mapping[str, int]) -> dict[str, int]:
    """Each slot to who has the fewest; among equals to who comes first."""
    given = dict.fromkeys(turns, 0)
    heap = [(running.get(tenant, 0), turn) for turn, tenant in enumerate(turns)]
    heapify(heap)
    for _ in range(free):
        has, turn = heap[0]
        given[turns[turn]] += 1
        heapreplace(heap, (has + 1, turn))
    return given


def _of_tenant(lines: list[ReadyLine], count: int) -> list[Share]:
    """The best priority alone; what is over where its lines are short is for the next look."""
    best = min(ready.priority for ready in lines)
    last = min((ready.priority for ready in lines if ready.priority > best), default=PRIORITY_LAST)
    first = sorted(
        (r for r in lines if r.priority == best), key=lambda ready: (ready.ready_time_us, ready.line)
    )
    each, over = divmod(count, len(first))
    counts = (each + (place < over) for place in range(len(first)))
    return [Share(ready.line, share, last) for ready, share in zip(first, counts, strict=True) if share]
