"""As a connector's: see there."""

from placet.supervisor import Supervisor

__all__ = ["Supervisor"]
