"""An address that was checked, as grpc is told."""

from __future__ import annotations

from placet_server.outbound.lookup import Address


def dialled(addresses: tuple[Address, ...], port: int) -> str:
    """Of one family: the first address's."""
    version = addresses[0].version
    same = [each for each in addresses if each.version == version]
    if version == 4:
        return "ipv4:" + ",".join(f"{each}:{port}" for each in same)
    return "ipv6:" + ",".join(f"[{each}]:{port}" for each in same)
