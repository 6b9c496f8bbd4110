"""The way from a command to a server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from placet import Client, Tls

CA_VARIABLE = "PLACET_CLIENT_CA_FILE"
CERTIFICATE_VARIABLE = "PLACET_CLIENT_CERTIFICATE_FILE"
KEY_VARIABLE = "PLACET_CLIENT_PRIVATE_KEY_FILE"
PLAINTEXT_VARIABLE = "PLACET_CLIENT_PLAINTEXT"

MATCHES_SHOWN_MAX = 8
_PREFIX = re.compile(r"[0-9a-f]{4,32}")


@contextmanager
def connect(target: str | None) -> Iterator[Client]:
    """A client, closed at the end. Raises Complaint if nothing says where the server is."""
    from placet import Client
    from placet.errors import TargetError

    if target and ":" not in target:
        # gRPC would look for port 443, to the end of the timeout.
        raise Complaint(f"--target is {target!r}; say host:port")
    try:
        client = Client.connect(target, tls=_tls())
    except TargetError as error:
        raise Complaint(str(error).replace("pass target='host:port'", "say --target host:port")) from None
    except OSError as error:
        raise Complaint(str(error)) from None
    with client:
        yield client


def find_action(client: Client, text: str) -> str:
    """The id that begins with `text`, with or without hyphens, four hexadecimal digits at least.

    Raises Complaint if none does, or several do.
    """
    prefix = prefix_of(text)
    if len(prefix) == 36:
        return prefix
    matches = [
        action.action_id
        for action in islice(
            client.list(action_id_prefix=prefix, page_size=MATCHES_SHOWN_MAX + 1), MATCHES_SHOWN_MAX + 1
        )
    ]
    if not matches:
        raise Complaint(f"no action begins with {prefix}", ExitCode.NOT_FOUND)
    if len(matches) > 1:
        shown = "\n".join(f"  {action_id}" for action_id in matches[:MATCHES_SHOWN_MAX])
        more = "\n  …" if len(matches) > MATCHES_SHOWN_MAX else ""
        raise Complaint(
            f"several actions begin with {prefix}; say more of it:\n{shown}{more}", kind="PREFIX_AMBIGUOUS"
        )
    return matches[0]


def prefix_of(text: str) -> str:
    """An id, or the beginning of one, as ids are written. Raises Complaint for what is none."""
    digits = text.strip().lower().replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise Complaint(f"{text!r} is no id: at least 4 hexadecimal digits of it are needed")
    return _hyphenated(digits)


def _hyphenated(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(part for part in parts if part)


def _tls() -> Tls | bool | None:
    """What the environment says; None leaves it to the target's address."""
    from placet import Tls

    files = [os.environ.get(name) or None for name in (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)]
    if os.environ.get(PLAINTEXT_VARIABLE, "").lower() in ("1", "true", "yes"):
        if any(files):
            raise Complaint(f"${PLAINTEXT_VARIABLE} and the TLS files exclude each other")
        return False
    if not any(files):
        return None
    if (files[1] is None) != (files[2] is None):
        raise Complaint(f"${CERTIFICATE_VARIABLE} and ${KEY_VARIABLE} belong together")
    return Tls(ca=files[0], certificate=files[1], key=files[2])
