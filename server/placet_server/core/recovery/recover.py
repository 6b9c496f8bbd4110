"""What the loops do by themselves, done now and told: a report of what stopped in between, with what to do next.

Everything here is done by compare-and-set, as the loops do it, so it may run beside them and twice at once. A report
says how things stood, and what became of them. The same request makes one report: a resend is told the first one again.
With `validate_only` nothing is done, and that is kept as a report, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_action_id
from placet_server.core.publication.promote import promote
from placet_server.core.publication.read import now_us
from placet_server.core.recovery.recover_approvals import approvals_section
from placet_server.core.recovery.recover_callbacks import callbacks_section
from placet_server.core.recovery.redrive import list_dead_letters, list_queues
from placet_server.core.recovery.rescue import BATCH_MAX, close_unwanted, declare_dead, rescue
from placet_server.core.recovery.resolve import list_ambiguous
from placet_server.core.recovery.wish import CanBeAsked
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.errors import NotFound
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.query import PAGE_SIZE_MAX, DeadLetterFilter
from placet_server.model.report import Report, ReportEntry, ReportFamily, ReportSection
from placet_server.store import report as rows
from placet_server.store.ambiguous import Ambiguous
from placet_server.store.queue import QueueDepth
from placet_server.store.report import Counts

ENTRIES_MAX = 100
BATCHES_MAX = 50
TEXT_LENGTH_MAX = 256
EVERY_TENANT = "-"

AskNow = Callable[[Sequence[Action]], Awaitable[int]]
"""Has lookups asked about them; how many will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverCommand:
    """`tenant` None: all of them. No `families`: every one. `key` ties resends together."""

    tenant: str | None
    families: tuple[ReportFamily, ...] = ()
    validate_only: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovering needs. `may_declare_dead`: this process has seen the store answer for a whole lease."""

    journal: Journal
    may_declare_dead: Callable[[], bool]
    ask_now: AskNow
    can_be_asked: CanBeAsked


async def recover(recovery: Recovery, caller: Caller, command: RecoverCommand) -> Report:
    """The report, as it is kept."""
    journal, digest = recovery.journal, _key_digest(caller, command)
    owner = command.tenant or EVERY_TENANT
    if digest is not None and (known := await _by_key(journal, digest)) is not None:
        return known
    sections = tuple(
        [
            await _SECTIONS[family](recovery, command)
            for family in ReportFamily
            if not command.families or family in command.families
        ]
    )
    report = Report(
        report_id=new_action_id(),
        create_time_us=await now_us(journal),
        requester=caller.subject,
        validate_only=command.validate_only,
        sections=sections,
    )
    async with journal.pool.connection() as connection:
        is_first = await rows.insert(
            connection,
            tenant=owner,
            report_id=report.report_id,
            create_time_us=report.create_time_us,
            requester=report.requester,
            key_digest=digest,
            summary=report.without_entries().to_text(),
            document=report.to_text(),
        )
    if is_first or digest is None:
        return report
    return await _by_key(journal, digest) or report


async def get_report(journal: Journal, tenant: str | None, report_id: str) -> Report:
    """Raises NotFound."""
    async with journal.pool.connection() as connection:
        text = await rows.get(connection, tenant or EVERY_TENANT, report_id)
    if text is None:
        raise NotFound(kind="report", name=report_id)
    return Report.from_text(text)


async def list_reports(
    journal: Journal, tenant: str | None, *, page_size: int, before: str = ""
) -> list[Report]:
    """Newest first, without entries; `before` is the last id of the page before."""
    size = min(page_size, PAGE_SIZE_MAX)
    async with journal.pool.connection() as connection:
        page = await rows.list_page(connection, tenant or EVERY_TENANT, before=before or None, page_size=size)
    return [Report.from_text(text) for text in page]


async def _by_key(journal: Journal, digest: bytes) -> Report | None:
    async with journal.pool.connection() as connection:
        text = await rows.get_by_key(connection, digest)
    return None if text is None else Report.from_text(text)


def _key_digest(caller: Caller, command: RecoverCommand) -> bytes | None:
    """Of the whole request, as who only looked must not be told that when he acts. No part of it can have a NUL."""
    if not command.key:
        return None
    what = ",".join(sorted(family.value for family in command.families))
    how = "look" if command.validate_only else "act"
    parts = (command.tenant or EVERY_TENANT, caller.tenant, caller.subject, command.key, what, how)
    return hashlib.sha256("\0".join(parts).encode()).digest()


async def _leases(recovery: Recovery, command: RecoverCommand) -> ReportSection:
    journal = recovery.journal
    async with journal.pool.connection() as connection:
        now = journal.clock.now()
        lost, found = await rows.list_lost(connection, command.tenant, count_max=ENTRIES_MAX, now=now)
        counts = await rows.count(connection, command.tenant, now)
    alive = counts.processes - counts.silent
    note = "1 server process is alive" if alive == 1 else f"{alive} server processes are alive"
    if not command.validate_only:
        if recovery.may_declare_dead():
            await declare_dead(journal)
        elif counts.silent:
            note += (
                f"; {counts.silent} silent, and declared dead once the store has answered for a whole lease"
            )
        for _ in range(BATCHES_MAX):
            if (await rescue(journal)).actions < BATCH_MAX:
                break
    elif counts.silent:
        note += f"; {counts.silent} silent"
    section = ReportSection(family=ReportFamily.LEASES, found=found, note=note)
    return await _with_states(recovery, section, lost)


async def _with_states(recovery: Recovery, section: ReportSection, actions: list[Action]) -> ReportSection:
    """As the actions stand now; those beyond the entries count as waiting."""
    async with recovery.journal.pool.connection() as connection:
        states = await rows.map_states(connection, actions)
    replayed = sum(state is ActionState.QUEUED for state in states.values())
    ambiguous = sum(state is ActionState.AMBIGUOUS for state in states.values())
    ended = sum(state in TERMINAL for state in states.values())
    return replace(
        section,
        replayed=replayed,
        ambiguous=ambiguous,
        ended=ended,
        waiting=section.found - replayed - ambiguous - ended,
        entries=tuple(_lost_entry(recovery, action, states.get(action.action_id)) for action in actions),
    )


def _lost_entry(recovery: Recovery, action: Action, state: ActionState | None) -> ReportEntry:
    next_step = {
        ActionState.RUNNING: "placet recover",
        ActionState.AMBIGUOUS: _doubt_step(action, asks=recovery.can_be_asked(action)),
        ActionState.EXHAUSTED: f"placet redrive {action.action_id}",
    }
    return ReportEntry(
        id=action.action_id,
        what=_shown(action),
        outcome="GONE" if state is None else state.value,
        next_step="" if state is None else next_step.get(state, ""),
    )


async def _queues(recovery: Recovery, command: RecoverCommand) -> ReportSection:
    journal = recovery.journal
    closed = 0
    if not command.validate_only:
        for _ in range(BATCHES_MAX):
            if not await promote(journal):
                break
        closed = await close_unwanted(journal, command.tenant)
    depths = await list_queues(journal, tenant=command.tenant)
    waiting = sum(depth.ready + depth.delayed for depth in depths)
    note = f"closed {closed} that nobody may begin any more" if closed else ""
    return ReportSection(
        family=ReportFamily.QUEUES,
        found=waiting + closed,
        waiting=waiting,
        ended=closed,
        note=note,
        entries=tuple(map(_queue_entry, depths[:ENTRIES_MAX])),
    )


def _queue_entry(depth: QueueDepth) -> ReportEntry:
    what = f"queue {depth.name}: {depth.ready} ready, {depth.delayed} delayed"
    if depth.oldest_seconds is not None:
        what += f", the oldest for {depth.oldest_seconds:.0f} s"
    is_paused = depth.pause_time_us is not None
    return ReportEntry(
        what=what[:TEXT_LENGTH_MAX],
        outcome="PAUSED" if is_paused else "WAITING",
        next_step=f"placet queues resume {depth.name}" if is_paused else "",
    )


async def _ambiguous(recovery: Recovery, command: RecoverCommand) -> ReportSection:
    journal = recovery.journal
    counts = await _counts(journal, command)
    found = await list_ambiguous(journal, tenant=command.tenant, capabilities=(), page_size=ENTRIES_MAX)
    note = ""
    if found and not command.validate_only:
        asked = await recovery.ask_now([each.action for each in found])
        note = f"lookups are asked about {asked} of them; placet ambiguous says what is left"
    return ReportSection(
        family=ReportFamily.AMBIGUOUS,
        found=counts.ambiguous,
        ambiguous=counts.ambiguous,
        note=note,
        entries=tuple(_ambiguous_entry(recovery, each) for each in found),
    )


def _ambiguous_entry(recovery: Recovery, found: Ambiguous) -> ReportEntry:
    action = found.action
    asks = found.next_time_us is not None and recovery.can_be_asked(action)
    return ReportEntry(
        id=action.action_id,
        what=_shown(action),
        outcome=action.state.value,
        next_step=_doubt_step(action, asks=asks),
        reason=action.reason or "",
    )


def _doubt_step(action: Action, *, asks: bool) -> str:
    """Whom nobody can be asked about is a person's."""
    if asks:
        return f"placet reconcile {action.action_id}"
    return f"placet resolve {action.action_id} done|not-done --reason … --evidence …"


async def _dead_letters(recovery: Recovery, command: RecoverCommand) -> ReportSection:
    journal = recovery.journal
    counts = await _counts(journal, command)
    found = await list_dead_letters(
        journal, tenant=command.tenant, matching=DeadLetterFilter(), page_size=ENTRIES_MAX
    )
    return ReportSection(
        family=ReportFamily.DEAD_LETTERS,
        found=counts.dead_letters,
        waiting=counts.dead_letters,
        entries=tuple(
            ReportEntry(
                id=action.action_id,
                what=_shown(action),
                outcome=action.state.value,
                next_step=f"placet redrive {action.action_id}",
                reason=action.reason or "",
            )
            for action in found
        ),
    )


async def _approvals(recovery: Recovery, command: RecoverCommand) -> ReportSection:
    return await approvals_section(
        recovery.journal, command.tenant, validate_only=command.validate_only, entries_max=ENTRIES_MAX
    )


async def _callbacks(recovery: Recovery, command: RecoverCommand) -> ReportSection:
    return await callbacks_section(
        recovery.journal, command.tenant, validate_only=command.validate_only, entries_max=ENTRIES_MAX
    )


async def _counts(journal: Journal, command: RecoverCommand) -> Counts:
    async with journal.pool.connection() as connection:
        return await rows.count(connection, command.tenant, journal.clock.now())


def _shown(action: Action) -> str:
    text = f"{action.capability} {action.version}, attempt {action.attempt}"
    if action.provider_operation:
        text += f", operation {action.provider_operation}"
    return text[:TEXT_LENGTH_MAX]


_SECTIONS: dict[ReportFamily, Callable[[Recovery, RecoverCommand], Awaitable[ReportSection]]] = {
    ReportFamily.LEASES: _leases,
    ReportFamily.QUEUES: _queues,
    ReportFamily.AMBIGUOUS: _ambiguous,
    ReportFamily.DEAD_LETTERS: _dead_letters,
    ReportFamily.APPROVALS: _approvals,
    ReportFamily.CALLBACKS: _callbacks,
}
