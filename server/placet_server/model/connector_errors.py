"""What stands between a caller and a handler in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class ConnectorUnavailable(PlacetError):
    """Nothing was done. `code` is UNAVAILABLE where the key is free again."""

    reason: ClassVar[str] = "CONNECTOR_UNAVAILABLE"
    code: Code = Code.UNAVAILABLE
    capability: str
    failure_code: str
    message: str = ""
    retry_delay_seconds: float | None = None

    def text(self) -> str:
        return f"The connector of {self.capability} was not to be had ({self.failure_code}): {self.message}"

    def metadata(self) -> dict[str, str]:
        return {"capability": self.capability, "failure_code": self.failure_code}
