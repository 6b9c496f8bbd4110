"""Many submissions at once, each with its own answer.

Each passes the gates by itself, and what passed is stored together: the writer takes all of it in as few flushes as it
fits into. Of items with the same key the first is stored, and the others meet it as they would meet it a moment later.
Items whose key is held are looked up together, and those that may take it over go round again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placet_server.core.admission.key import Known, meet_known
from placet_server.core.admission.pipeline import Call, Checked, pass_gates
from placet_server.core.admission.reserve import is_boot_alive
from placet_server.core.admission.session import check_same_session
from placet_server.core.admission.submit import (
    SUBMISSION_TRIES_MAX,
    Submitted,
    find_own,
    may_be_in_session,
    new_row,
    store_row,
    stored,
    write,
)
from placet_server.core.kernel import Kernel
from placet_server.core.publication.family import all_with_effect_so_far
from placet_server.core.publication.read import now_us
from placet_server.core.publication.waits import all_with_waits
from placet_server.model.action import Action, Submission
from placet_server.model.errors import Draining, InternalFault, PlacetError, StoreUnavailable
from placet_server.store import action as actions
from placet_server.store.batch_item import SubmissionRow

ITEMS_MAX = 500
# So many pass the gates before others get their turn.
CHECKS_AT_A_TIME = 16

_log = logging.getLogger(__name__)

Result = Submitted | PlacetError


@dataclass(slots=True, eq=False)
class _Item:
    """`holder`: whose key it is, as far as is known. `result` None: not known yet."""

    index: int
    place: Submission
    checked: Checked
    holder: Action | None = None
    predecessor: Action | None = None
    result: Result | None = None


async def submit_batch(kernel: Kernel, items: Sequence[tuple[Call, Submission]]) -> list[Result]:
    """In the order of the items, which are at most ITEMS_MAX and of one caller: what `submit` would have returned or
    raised for each.

    Raises nothing on account of an item.
    """
    results: dict[int, Result] = {}
    pending: list[_Item] = []
    away: StoreUnavailable | None = None
    for index, (call, place) in enumerate(items):
        if index % CHECKS_AT_A_TIME == 0:
            await asyncio.sleep(0)
        try:
            if away is not None:
                raise away
            pending.append(
                _Item(index, place, await pass_gates(kernel, call, anywhere=True, against_quota=False))
            )
        except StoreUnavailable as error:
            # One wait for a store that is away is enough.
            results[index] = away = error
        except Exception as error:
            results[index] = _told(error)
    pending = await _within_quota(kernel, pending, results)
    for _ in range(SUBMISSION_TRIES_MAX):
        await _go_round(kernel, pending)
        results |= {item.index: item.result for item in pending if item.result is not None}
        pending = [item for item in pending if item.result is None]
        if not pending:
            break
    results |= {item.index: Draining() for item in pending}
    return await _with_waits(kernel, [results[index] for index in range(len(items))])


async def _with_waits(kernel: Kernel, results: list[Result]) -> list[Result]:
    """What was met and waits for people says for what, and what calls others what is known of these, as far as the
    store can tell by now.
    """
    met = [each.action for each in results if isinstance(each, Submitted) and each.attached]
    if not met:
        return results
    try:
        tenant = met[0].requester.tenant
        told = await all_with_waits(kernel.journal, tenant, met)
        told = await all_with_effect_so_far(kernel.journal, tenant, told)
    except StoreUnavailable:
        return results
    known = {action.action_id: action for action in told}
    return [
        Submitted(known[each.action.action_id], attached=True)
        if isinstance(each, Submitted) and each.attached
        else each
        for each in results
    ]


async def _within_quota(kernel: Kernel, pending: list[_Item], results: dict[int, Result]) -> list[_Item]:
    """The first of these, as many as the tenant may have now; the others are refused."""
    if kernel.quotas is None or not pending:
        return pending
    try:
        count, exceeded = await kernel.quotas.admit(pending[0].checked.call.caller.tenant, len(pending))
    except StoreUnavailable as error:
        results |= {item.index: error for item in pending}
        return []
    for item in pending[count:]:
        assert exceeded is not None
        kernel.engine.observer.refused(exceeded.reason)
        results[item.index] = exceeded
    return pending[:count]


async def _go_round(kernel: Kernel, pending: Sequence[_Item]) -> None:
    """Gives results to as many as it can; the rest may try again, some with a predecessor."""
    first = _first_of_each(pending)
    rows = [new_row(kernel.journal, item.checked, item.place, item.predecessor) for item in first]
    written = await _store_rows(kernel, first, rows)
    unwritten = []
    for item, row, answer in zip(first, rows, written, strict=True):
        if isinstance(answer, Action):
            _stored(item, answer)
        elif answer is None:
            unwritten.append((item, row))
        else:
            item.result = _told(answer)
    try:
        await _meet_holders(kernel, unwritten)
        await _follow(kernel, first, pending)
    except Exception as error:
        # Whatever is not known by now fails alike: the store is away.
        for item in pending:
            item.result = item.result or _told(error)


async def _store_rows(
    kernel: Kernel, items: Sequence[_Item], rows: Sequence[SubmissionRow]
) -> list[Action | BaseException | None]:
    """Together, but for runs of sessions: those have their turns in the order of the items."""
    answers: dict[int, Action | BaseException | None] = {}
    in_sessions = [i for i, item in enumerate(items) if item.checked.call.invocation.session is not None]
    others = set(range(len(items))).difference(in_sessions)
    writes = {i: write(kernel.journal, items[i].checked, rows[i]) for i in others}

    async def note(index: int, storing: Awaitable[Action | None]) -> None:
        try:
            answers[index] = await storing
        except Exception as error:
            answers[index] = error

    async def note_sessions() -> None:
        for index in in_sessions:
            await note(index, store_row(kernel, items[index].checked, rows[index]))

    async def note_others() -> None:
        for index, written in writes.items():
            await note(index, stored(kernel.journal, items[index].checked, rows[index], written))

    try:
        await asyncio.gather(note_sessions(), note_others())
    finally:
        # What is not written yet, nobody waits for any more.
        for written in writes.values():
            if not written.cancel() and not written.cancelled():
                # Nor is told that it failed.
                written.exception()
    return [answers[index] for index in range(len(items))]


def _first_of_each(pending: Sequence[_Item]) -> list[_Item]:
    """Of each key the first item, and every item without one."""
    first: dict[Any, _Item] = {}
    for item in pending:
        key = item.checked.key
        first.setdefault(item.index if key is None else key.digest, item)
    return list(first.values())


async def _meet_holders(kernel: Kernel, unwritten: Sequence[tuple[_Item, SubmissionRow]]) -> None:
    """Of those that were not written: their own rows, after a lost reply, or whoever holds their keys."""
    if not unwritten:
        return
    holders = await _holders(kernel, [item for item, _ in unwritten])
    now = await now_us(kernel.journal)
    alive = not kernel.is_fenced and await is_boot_alive(kernel.journal)
    for item, row in unwritten:
        key = item.checked.key
        if key is None:
            own = await find_own(kernel.journal, row)
            if own is None:
                item.result = Draining()
            else:
                _stored(item, own)
        elif (holder := holders.get(key.digest)) is None:
            item.predecessor = None
            item.result = None if alive else Draining()
        elif holder.action_id == row["action_id"]:
            _stored(item, holder)
        else:
            await _meet(kernel, item, holder, now)


async def _holders(kernel: Kernel, items: Sequence[_Item]) -> Mapping[bytes, Action]:
    digests = [item.checked.key.digest for item in items if item.checked.key is not None]
    if not digests:
        return {}
    async with kernel.journal.pool.connection() as connection:
        return await actions.map_by_key_digests(connection, digests)


async def _follow(kernel: Kernel, first: Sequence[_Item], pending: Sequence[_Item]) -> None:
    """The others of each key, once it is known who holds it. If that is not known because nothing can be stored, they
    fail alike; else they go round again.
    """
    ahead = {item.checked.key.digest: item for item in first if item.checked.key is not None}
    now = await now_us(kernel.journal) if len(first) < len(pending) else 0
    for item in pending:
        key = item.checked.key
        leader = item if key is None else ahead[key.digest]
        if leader is item or leader.result is None:
            continue
        if leader.holder is not None:
            await _meet(kernel, item, leader.holder, now)
        elif isinstance(leader.result, StoreUnavailable | Draining):
            item.result = leader.result


def _stored(item: _Item, action: Action) -> None:
    item.holder = action
    item.result = Submitted(action, attached=False)


async def _meet(kernel: Kernel, item: _Item, holder: Action, now: int) -> None:
    """Attached, refused, or to go round again and take the key over."""
    checked = item.checked
    item.holder = holder
    try:
        meaning = meet_known(holder, checked.call.invocation, checked.input.digest.hex(), now)
        if meaning is Known.ATTEND and may_be_in_session(checked):
            await check_same_session(kernel, checked.call, holder)
    except PlacetError as error:
        item.result = error.with_traceback(None)
        return
    if meaning is Known.ATTEND:
        item.result = Submitted(holder, attached=True)
    else:
        item.predecessor = holder


def _told(error: BaseException) -> PlacetError:
    if isinstance(error, PlacetError):
        return error
    if not isinstance(error, Exception):
        raise error
    incident_id = uuid.uuid4().hex
    _log.error("incident %s in a batch", incident_id, exc_info=error, extra={"incident_id": incident_id})
    return InternalFault(incident_id=incident_id)
