"""Which hosts may be dialled. A name is looked up here, and what is dialled is the address that was checked: a second
look, by somebody else, could give another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from placet_server.outbound.lookup import Address, Lookups

_TARGET = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\*")
# A machine's link to its surroundings, such as the metadata of its cloud, is nobody's to dial.
_NEVER = "it is reserved, or of the link alone"
# Where clouds answer beside 169.254.0.0/16, which is of the link.
_METADATA = frozenset(
    map(
        ip_address,
        ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    )
)
_UNIQUE_LOCAL = IPv6Network("fc00::/7")
# A translator there dials the IPv4 address of the last four bytes.
_TRANSLATED = IPv6Network("64:ff9b::/96")
# The same by other prefixes, of translators, tunnels and old systems; and what was local once.
_RESERVED = tuple(
    map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10"))
)


class HostRefused(Exception):
    """The text is for whoever admits or operates."""


class Place(NamedTuple):
    """The parts of a target. `host` is in lower case, without brackets."""

    host: str
    port: int


def place_of(target: str) -> Place:
    """Raises HostRefused."""
    match = _TARGET.fullmatch(target)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise HostRefused("A target is host:port or [IPv6]:port, and no other scheme.")
    return Place((match["six"] or match["host"]).lower(), int(match["port"]))


class HostRules:
    """What may be dialled: `loopback`, `private`, `public`, networks such as 10.1.0.0/16, names, or names of a domain
    such as *.svc.cluster.local. A name that is listed may have any address but one of the link alone; any other name
    only addresses that are allowed.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        is_insecure: bool = False,
        settings: str = "PLACET_CONNECTOR",
        lookups: Lookups | None = None,
    ) -> None:
        """`is_insecure`: plaintext may leave this machine. `settings`: where it was said, for whoever is refused.

        Raises ValueError for a word that is none of these.
        """
        self._insecure = is_insecure
        self._settings = settings
        self._lookups = lookups or Lookups()
        self._kinds: set[str] = set()
        self._networks = []
        self._names: set[str] = set()
        for word in (word.lower() for word in hosts):
            if word in ("loopback", "private", "public"):
                self._kinds.add(word)
            elif "/" in word or _is_address(word):
                self._networks.append(ip_network(word))
            elif _NAME.fullmatch(word):
                self._names.add(word)
            else:
                raise ValueError(f"{word!r} is no host, network, loopback, private or public")

    def check(self, target: str, *, plaintext: bool) -> Place:
        """What can be said without looking the name up. Raises HostRefused."""
        place = place_of(target)
        if _is_address(place.host):
            self._check_address(ip_address(place.host), place.host, is_listed=False)
        elif not (self._is_listed(place.host) or self._kinds or self._networks):
            raise self._refused(place.host)
        if plaintext and not self._insecure and not _may_be_loopback(place.host):
            raise HostRefused(
                f"{place.host} is not on this machine, so plaintext is refused; use TLS, or set "
                f"{self._settings}_INSECURE=true behind a mesh."
            )
        return place

    async def resolve(self, target: str, *, plaintext: bool) -> tuple[Address, ...]:
        """What to dial: every address was checked. Raises HostRefused, OSError."""
        place = self.check(target, plaintext=plaintext)
        found = await self._addresses(place)
        listed = self._is_listed(place.host)
        for each in found:
            self._check_address(each, place.host, is_listed=listed)
            if plaintext and not self._insecure and not each.is_loopback:
                raise HostRefused(f"{place.host} is {each}, not this machine: plaintext is refused.")
        return found

    async def _addresses(self, place: Place) -> tuple[Address, ...]:
        if _is_address(place.host):
            return (ip_address(place.host),)
        return await self._lookups.find(place.host)

    def _is_listed(self, host: str) -> bool:
        return "*" in self._names or any(
            host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in self._names
        )

    def _check_address(self, address: Address, host: str, *, is_listed: bool) -> None:
        actual, inner = _actual(address), _inner(address)
        for each in (actual, *inner):
            if each.is_link_local or each.is_multicast or each.is_unspecified or each in _METADATA:
                raise HostRefused(f"{host} may not be dialled: {_NEVER}.")
        if is_listed or any(
            actual.version == network.version and actual in network for network in self._networks
        ):
            return
        if _kind_of(actual) not in self._kinds:
            raise self._refused(host)

    def _refused(self, host: str) -> HostRefused:
        return HostRefused(f"{host} is not among the hosts that may be dialled; see {self._settings}_HOSTS.")


def _actual(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _inner(address: Address) -> tuple[IPv4Address, ...]:
    """IPv4 addresses that may be reached by an IPv6 one, whoever translates it."""
    if isinstance(address, IPv4Address) or address.is_loopback:
        return ()
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    found = [address.sixtofour] if address.sixtofour else []
    if address in _TRANSLATED or any(address in network for network in _RESERVED[:3]):
        found.append(last)
    return tuple(found)


def _kind_of(address: Address) -> str:
    if address.is_loopback:
        return "loopback"
    if address in _TRANSLATED:
        return "public" if all(each.is_global for each in _inner(address)) else "reserved"
    if any(address in network for network in _RESERVED):
        return "reserved"
    if address.is_global:
        return "public"
    if isinstance(address, IPv4Address):
        return "private" if address.is_private and not address.is_reserved else "reserved"
    return "private" if address in _UNIQUE_LOCAL else "reserved"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _may_be_loopback(host: str) -> bool:
    """A name may be, and is looked up before it is dialled."""
    return not _is_address(host) or ip_address(host).is_loopback
