"""Reports of recovery, to model and back."""

from __future__ import annotations

from placet.v1 import recovery_service_pb2 as pb
from placet_server.core.recovery.recover import RecoverCommand
from placet_server.model.report import Report, ReportEntry, ReportFamily, ReportSection
from placet_server.rpc.convert.enumeration import ERROR_REASON, members, numbers
from placet_server.rpc.convert.time import set_timestamp

FAMILY = numbers(pb.ReportFamily, "REPORT_FAMILY_", ReportFamily)
FAMILY_MEMBER = members(pb.ReportFamily, "REPORT_FAMILY_", ReportFamily)


def recover_of(request: pb.RecoverRequest, tenant: str | None) -> RecoverCommand:
    """The message has passed validation."""
    return RecoverCommand(
        tenant=tenant,
        families=tuple(FAMILY_MEMBER[family] for family in request.families),
        validate_only=request.validate_only,
        key=request.idempotency_key,
    )


def report_message(report: Report) -> pb.Report:
    message = pb.Report(
        report_id=report.report_id,
        requester=report.requester,
        validate_only=report.validate_only,
        sections=map(_section, report.sections),
    )
    set_timestamp(message.create_time, report.create_time_us)
    return message


def _section(section: ReportSection) -> pb.ReportSection:
    return pb.ReportSection(
        family=FAMILY[section.family],
        found=section.found,
        replayed=section.replayed,
        waiting=section.waiting,
        ambiguous=section.ambiguous,
        ended=section.ended,
        note=section.note,
        entries=map(_entry, section.entries),
    )


def _entry(entry: ReportEntry) -> pb.ReportEntry:
    message = pb.ReportEntry(
        id=entry.id,
        what=entry.what,
        outcome=entry.outcome,
        next_step=entry.next_step,
    )
    if entry.reason:
        message.reason = ERROR_REASON[entry.reason]
    return message
