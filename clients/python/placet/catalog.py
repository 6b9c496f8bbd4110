"""What a client asks for about the catalogue. `Client` has all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from placet.catalog_requests import Connector, KindWord, admit_request, list_request
from placet.sender import Sender
from placet.stream import READ_SECONDS
from placet.v1 import capability_pb2
from placet.v1 import catalog_service_pb2 as pb

if TYPE_CHECKING:
    from placet.app import App


class CatalogCalls(Sender):
    """What it sends, beside all that the client does."""

    def capabilities(
        self,
        prefix: str = "",
        *,
        kind: KindWord | None = None,
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> Iterator[capability_pb2.Capability]:
        """All versions, by name, without schemas and instructions; `kind`: only such."""
        request = list_request(prefix, kind, page_size)
        return self._pages("ListCapabilities", request, "capabilities", timeout)

    def capability(
        self, name: str, version: str = "", *, timeout: float = READ_SECONDS
    ) -> capability_pb2.Capability:
        """With its schemas; without `version` the current one."""
        request = pb.GetCapabilityRequest(name=name, version=version)
        capability: capability_pb2.Capability = self._ask("GetCapability", request, timeout).capability
        return capability

    def manifests(self, *, page_size: int = 0, timeout: float = READ_SECONDS) -> Iterator[pb.ManifestSummary]:
        request = pb.ListManifestsRequest(page_size=page_size)
        return self._pages("ListManifests", request, "manifests", timeout)

    def manifest(self, name: str, *, timeout: float = READ_SECONDS) -> pb.GetManifestResponse:
        """As admitted, with its digest."""
        response: pb.GetManifestResponse
        response = self._ask("GetManifest", pb.GetManifestRequest(name=name), timeout)
        return response

    def admit(
        self,
        subject: App | capability_pb2.Manifest,
        *,
        connector: Connector | str | None = None,
        validate_only: bool = False,
        expected_digest: str = "",
        idempotency_key: str = "",
        timeout: float = READ_SECONDS,
    ) -> pb.AdmitManifestResponse:
        """Admit an app or manifest whole, or not at all; `validate_only` changes nothing and reports every problem.

        `connector`: the process that serves it, host:port; without, it is this server's own process. Where policies
        ask somebody else to agree it raises ApprovalRequired; the same call meets it again, once that is done.
        """
        request = admit_request(
            subject,
            connector=connector,
            validate_only=validate_only,
            expected_digest=expected_digest,
            idempotency_key=idempotency_key,
        )
        response: pb.AdmitManifestResponse = self._ask("AdmitManifest", request, timeout)
        return response

    def withdraw(
        self,
        name: str,
        version: str = "",
        *,
        reason: str = "",
        validate_only: bool = False,
        idempotency_key: str = "",
        timeout: float = READ_SECONDS,
    ) -> pb.WithdrawCapabilityResponse:
        """Take a version, or every version, of a capability out of service: new calls do not find it, what stands in
        line for it ends REFUSED, and what waits for people once they have said yes. What runs goes on. `validate_only`
        tells how many that are.
        """
        request = pb.WithdrawCapabilityRequest(
            name=name,
            version=version,
            reason=reason,
            validate_only=validate_only,
            idempotency_key=idempotency_key,
        )
        response: pb.WithdrawCapabilityResponse
        response = self._ask("WithdrawCapability", request, timeout)
        return response
