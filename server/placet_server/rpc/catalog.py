"""CatalogService."""

from __future__ import annotations

from placet.v1 import capability_pb2
from placet.v1 import catalog_service_pb2 as pb
from placet_server.core.admission.catalog import CatalogEntry
from placet_server.core.governance.catalog import look_at_withdrawal, problems_of
from placet_server.core.governance.tools import ADMIT_MANIFEST, WITHDRAW_CAPABILITY
from placet_server.core.governance.use import Members
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import check_text
from placet_server.model.manifest import LOCAL_TENANT, Problem
from placet_server.model.query import PAGE_SIZE_DEFAULT
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.capability import (
    KIND_MEMBER,
    capability_message,
    manifest_message,
    manifest_of,
)
from placet_server.rpc.governed import governed
from placet_server.rpc.page import fitting, page_position, page_token
from placet_server.rpc.text import cut

# Neither names nor versions have it.
_SEPARATOR = "\n"


class CatalogServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._catalog = kernel.catalog

    async def admit_manifest(self, rpc: Rpc[pb.AdmitManifestRequest]) -> pb.AdmitManifestResponse:
        request = rpc.request
        manifest = manifest_of(request.manifest)
        if request.validate_only:
            looked = await self._catalog.admit(
                rpc.caller, manifest, validate_only=True, expected_digest=request.expected_digest
            )
            return pb.AdmitManifestResponse(
                digest=looked.digest, problems=map(_problem_message, looked.problems)
            )
        members: Members = {"manifest": manifest.to_document()}
        if request.expected_digest:
            members["expected_digest"] = request.expected_digest
        output = await governed(
            self._kernel,
            rpc,
            ADMIT_MANIFEST,
            members,
            idempotency_key=request.idempotency_key,
            again_if_stale=not request.expected_digest,
        )
        return pb.AdmitManifestResponse(
            digest=output["digest"],
            problems=map(_problem_message, problems_of(output)),
            changed=output["changed"],
        )

    async def withdraw_capability(
        self, rpc: Rpc[pb.WithdrawCapabilityRequest]
    ) -> pb.WithdrawCapabilityResponse:
        request = rpc.request
        check_text(request.name, request.version, request.reason)
        if request.validate_only:
            output = await look_at_withdrawal(self._catalog, rpc.caller, request.name, request.version)
        else:
            members = {"name": request.name, "version": request.version, "reason": request.reason}
            output = await governed(
                self._kernel,
                rpc,
                WITHDRAW_CAPABILITY,
                {name: text for name, text in members.items() if text},
                idempotency_key=request.idempotency_key,
                again_if_stale=True,
            )
        return pb.WithdrawCapabilityResponse(versions=output["versions"], **output["open"])

    async def get_manifest(self, rpc: Rpc[pb.GetManifestRequest]) -> pb.GetManifestResponse:
        stored = await self._catalog.get_manifest(rpc.caller.tenant, rpc.request.name)
        return pb.GetManifestResponse(manifest=manifest_message(stored.manifest), digest=stored.digest)

    async def list_manifests(self, rpc: Rpc[pb.ListManifestsRequest]) -> pb.ListManifestsResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        size = request.page_size or PAGE_SIZE_DEFAULT
        rows = await self._catalog.list_manifests(
            tenant, page_size=size, after_name=page_position(request, tenant)
        )
        summaries = [
            pb.ManifestSummary(
                name=row.name,
                version=row.version,
                digest=row.digest,
                capability_count=row.capability_count,
                local=row.tenant == LOCAL_TENANT,
            )
            for row in rows
        ]
        position = rows[-1].name if len(rows) == size else ""
        return pb.ListManifestsResponse(
            manifests=summaries, next_page_token=page_token(request, tenant, position)
        )

    async def get_capability(self, rpc: Rpc[pb.GetCapabilityRequest]) -> pb.GetCapabilityResponse:
        entry = await self._catalog.get_capability(
            rpc.caller.tenant, rpc.request.name, rpc.request.version or None
        )
        message = await self._entry_message(entry, rpc.caller.tenant, with_schemas=True)
        return pb.GetCapabilityResponse(capability=message)

    async def list_capabilities(self, rpc: Rpc[pb.ListCapabilitiesRequest]) -> pb.ListCapabilitiesResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        size = request.page_size or PAGE_SIZE_DEFAULT
        name, _, version = page_position(request, tenant).partition(_SEPARATOR)
        entries = await self._catalog.list_capabilities(
            tenant,
            page_size=size,
            name_prefix=request.name_prefix,
            after=(name, version),
            kind=KIND_MEMBER.get(request.kind),
        )
        told = [await self._entry_message(entry, tenant, with_schemas=False) for entry in entries]
        messages = fitting(told)
        position = ""
        if len(entries) == size or len(messages) < len(entries):
            last = messages[-1]
            position = f"{last.name}{_SEPARATOR}{last.version}"
        return pb.ListCapabilitiesResponse(
            capabilities=messages, next_page_token=page_token(request, tenant, position)
        )

    async def _entry_message(
        self, entry: CatalogEntry, tenant: str, *, with_schemas: bool
    ) -> capability_pb2.Capability:
        stored = entry.stored
        message = capability_message(stored.capability, with_schemas=with_schemas)
        message.contract_digest = stored.contract_digest
        message.manifest = stored.manifest
        message.served = entry.served
        message.current = stored.current
        message.withdrawn = stored.is_withdrawn
        for lack in await self._catalog.lacks(entry, tenant):
            message.lacks.add(problem=lack.problem, name=lack.name)
        return message


def _problem_message(problem: Problem) -> pb.ManifestProblem:
    return pb.ManifestProblem(
        path=cut(problem.path, 512),
        code=problem.code,
        message=cut(problem.message, 1024),
        warning=problem.warning,
    )
