"""What a client asks for after something stopped in between. `AsyncClient` has all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from placet import recovery_requests as requests
from placet.aio_sender import AsyncSender
from placet.recovery_requests import FamilyWord, VerdictWord
from placet.retry import Deadline
from placet.steps import redrive
from placet.stream import CALL_SECONDS, READ_SECONDS
from placet.v1 import action_pb2, recovery_service_pb2


class AsyncRecoveryCalls(AsyncSender):
    """What it sends, beside all that the client does."""

    def dead_letters(
        self,
        *,
        capabilities: Iterable[str] = (),
        queue: str = "",
        reason: str = "",
        tenant: str = "",
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> AsyncIterator[action_pb2.Action]:
        """Actions that ended with nobody waiting, newest first, without payloads; `reason` is that of their end, such
        as "RETRY_BUDGET". Pages are fetched as needed."""
        request = requests.dead_letters_request(
            capabilities=capabilities, queue=queue, reason=reason, tenant=tenant, page_size=page_size
        )
        return self._pages("ListDeadLetters", request, "actions", timeout)

    async def redrive(
        self,
        action_ids: Iterable[str] = (),
        *,
        capabilities: Iterable[str] = (),
        queue: str = "",
        reason_of_death: str = "",
        count_max: int = 0,
        attempts: int = 0,
        reason: str = "",
        validate_only: bool = False,
        key: str | None = None,
        timeout: float = CALL_SECONDS,
    ) -> Sequence[recovery_service_pb2.SelectionResult]:
        """Try ended actions again, under their ids and keys: these, or the dead letters that match, oldest first, at
        most `count_max` of them (100 unless said).

        Each may have `attempts` tries from here, or as many as its contract allows. What is refused says why.
        `validate_only` changes nothing. `key` ties resends together; without one a fresh key is made.
        """
        request = requests.redrive_request(
            action_ids=action_ids,
            capabilities=capabilities,
            queue=queue,
            reason_of_death=reason_of_death,
            count_max=count_max,
            attempts=attempts,
            reason=reason,
            validate_only=validate_only,
            key=key,
        )
        return await self._run(redrive(request, Deadline(timeout), self._policy))

    def ambiguous(
        self,
        *,
        capabilities: Iterable[str] = (),
        tenant: str = "",
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> AsyncIterator[recovery_service_pb2.AmbiguousEffect]:
        """Actions whose effect may have happened, oldest first; pages are fetched as needed."""
        request = requests.ambiguous_request(capabilities=capabilities, tenant=tenant, page_size=page_size)
        return self._pages("ListAmbiguous", request, "effects", timeout)

    async def resolve_ambiguous(
        self,
        action_id: str,
        verdict: VerdictWord,
        *,
        reason: str,
        evidence: str,
        output: Any = None,
        expected_attempt: int = 0,
        validate_only: bool = False,
        timeout: float = READ_SECONDS,
    ) -> action_pb2.Action:
        """Say what became of an effect, for good: "done" makes it SUCCEEDED with `output`, "not_done" FAILED, or
        CANCELLED if somebody asked for that.

        `reason` and `evidence` are kept with it. `expected_attempt`: only if it is still this one. `validate_only`
        checks everything and changes nothing.
        """
        request = requests.resolve_request(
            action_id,
            verdict,
            reason=reason,
            evidence=evidence,
            output=output,
            expected_attempt=expected_attempt,
            validate_only=validate_only,
        )
        action: action_pb2.Action = (await self._ask("ResolveAmbiguous", request, timeout)).action
        return action

    async def reconcile(
        self,
        action_ids: Iterable[str] = (),
        *,
        capabilities: Iterable[str] = (),
        count_max: int = 0,
        validate_only: bool = False,
        timeout: float = READ_SECONDS,
    ) -> Sequence[recovery_service_pb2.SelectionResult]:
        """Have lookups asked now what became of effects, also of those that were given up: these, or the oldest
        `count_max` (100 unless said) that are ambiguous and of these capabilities.

        It does not wait for them: `wait` and `watch` do. What is refused says why. `validate_only` changes nothing.
        """
        request = requests.reconcile_request(
            action_ids=action_ids, capabilities=capabilities, count_max=count_max, validate_only=validate_only
        )
        response = await self._ask("Reconcile", request, timeout)
        results: Sequence[recovery_service_pb2.SelectionResult] = response.results
        return results

    async def recover(
        self,
        *,
        families: Iterable[FamilyWord] = (),
        tenant: str = "",
        validate_only: bool = False,
        key: str | None = None,
        timeout: float = CALL_SECONDS,
    ) -> recovery_service_pb2.Report:
        """Have the server do now what it does by itself, and tell what there was and what to do next.

        `families`: of these alone. `tenant` "-": of all tenants, for operators. `validate_only` only looks. `key` ties
        resends together; without one a fresh key is made.
        """
        request = requests.recover_request(
            families=families, tenant=tenant, validate_only=validate_only, key=key
        )
        report: recovery_service_pb2.Report = (await self._ask("Recover", request, timeout)).report
        return report

    async def report(
        self, report_id: str, *, tenant: str = "", timeout: float = READ_SECONDS
    ) -> recovery_service_pb2.Report:
        """One report, with its entries. `tenant` as it was asked for."""
        request = recovery_service_pb2.GetReportRequest(tenant=tenant, report_id=report_id)
        report: recovery_service_pb2.Report = (await self._ask("GetReport", request, timeout)).report
        return report

    def reports(
        self, *, tenant: str = "", page_size: int = 0, timeout: float = READ_SECONDS
    ) -> AsyncIterator[recovery_service_pb2.Report]:
        """Reports without their entries, newest first; pages are fetched as needed."""
        request = recovery_service_pb2.ListReportsRequest(tenant=tenant, page_size=page_size)
        return self._pages("ListReports", request, "reports", timeout)
