"""`placet whoami`."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from placet_server.cli.action import through_of
from placet_server.cli.option import Json, Target
from placet_server.cli.output import print_document, print_facts
from placet_server.cli.server import agent_facts

LINE_CHARACTERS_MAX = 100


def whoami(target: Target = None, is_json: Json = False) -> None:
    """Who the server thinks you are.

    Also what you may call, and what the server keeps.

    \b
    Examples:
      placet whoami
      placet whoami --target localhost:7433 --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        answer, server = document_of(client.whoami()), document_of(client.server_info())
    if is_json:
        print_document({**answer, "server": server})
        return
    caller = answer["caller"]
    print_facts(
        [
            ("subject", caller["subject"]),
            ("tenant", caller["tenant"]),
            ("kind", caller["kind"]),
            ("roles", ", ".join(caller["roles"])),
            ("groups", ", ".join(caller["groups"])),
            ("scopes", ", ".join(caller["scopes"])),
            ("through", through_of(caller)),
            ("login", _login(caller["login"])),
            ("known by", answer["identity_source"]),
            *_permitted(answer["permitted_rpcs"]),
            ("server", f"Placet {server['version']}, boot {server['boot_id']}"),
            ("store", f"PostgreSQL {server['store_version']}, replication {server['replication']}"),
            ("keeps", server["durability"]),
            *agent_facts(server),
            ("store time", server["store_time"] or ""),
        ]
    )


def _permitted(rpcs: list[str]) -> list[tuple[str, str]]:
    """Service by service, in lines that fit."""
    by_service: dict[str, list[str]] = {}
    for name in rpcs:
        service, _, method = name.rpartition("/")
        by_service.setdefault(service.rpartition(".")[2], []).append(method)
    told = (f"{service}: {', '.join(methods)}" for service, methods in by_service.items())
    lines = [line for each in told for line in wrap(each, LINE_CHARACTERS_MAX, subsequent_indent="  ")]
    return [("" if number else "may call", line) for number, line in enumerate(lines)]


def _login(login: dict[str, Any] | None) -> str:
    if login is None:
        return ""
    how = " ".join(filter(None, (login["strength"], ", ".join(login["methods"]))))
    return f"{how} at {login['time']}" if login["time"] else how
