"""`placet capabilities`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.option import Json, Target
from placet_server.cli.output import pretty_json, print_document, print_facts, print_table, say

if TYPE_CHECKING:
    from placet import Client


def capabilities(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this one whole, with its schemas.")
    ] = None,
    version: Annotated[str, typer.Option(help="With NAME: this version instead of the current one.")] = "",
    prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = "",
    target: Target = None,
    is_json: Json = False,
) -> None:
    """What can be called, and what is promised about it.

    \b
    Examples:
      placet capabilities
      placet capabilities payments.refund
      placet capabilities --prefix payments. --json
    """
    from placet_server.cli.session import connect

    with connect(target) as client:
        if name is None:
            _list(client, prefix, is_json)
        else:
            _show(client, name, version, is_json)


def _list(client: Client, prefix: str, is_json: bool) -> None:
    from placet_server.cli.document import document_of

    found = [document_of(each) for each in client.capabilities(prefix)]
    if is_json:
        print_document({"capabilities": found})
        return
    rows = [
        (
            each["name"],
            each["version"] + ("" if each["current"] else " (not current)"),
            each["contract"]["effect"],
            each["contract"]["risk"],
            _key_rule(each["contract"]),
            "WITHDRAWN" if each["withdrawn"] else "" if each["served"] else "NO HANDLER HERE",
            each["presentation"]["title"] if each["presentation"] else "",
        )
        for each in found
    ]
    columns = ("NAME", "VERSION", "EFFECT", "RISK", "KEY", "", "TITLE")
    print_table(columns, rows, empty="nothing can be called here")


def _show(client: Client, name: str, version: str, is_json: bool) -> None:
    from placet_server.cli.document import document_of

    found = document_of(client.capability(name, version))
    if is_json:
        print_document(found)
        return
    contract, shown = found["contract"], found["presentation"] or {}
    print_facts(
        [
            ("name", found["name"]),
            ("version", found["version"] + ("" if found["current"] else " (not current)")),
            ("title", shown.get("title", "")),
            ("description", shown.get("description", "")),
            *_promises(contract),
            ("served here", "yes" if found["served"] else "no"),
            ("manifest", found["manifest"]),
            ("contract", found["contract_digest"]),
        ]
    )
    for what in ("input_schema", "output_schema"):
        if found[what] is not None:
            say(f"\n{what.replace('_', ' ')}\n{pretty_json(found[what])}")


def _promises(contract: dict[str, Any]) -> list[tuple[str, str]]:
    limits, retry = contract["limits"] or {}, contract["retry"] or {}
    return [
        ("effect", contract["effect"]),
        ("effect key kept", _seconds(contract["effect_key_ttl"])),
        ("hazards", ", ".join(contract["hazards"])),
        ("risk", contract["risk"]),
        ("key", _key_rule(contract)),
        ("attempts", str(retry.get("attempts_max") or "")),
        ("pause between", _pauses(retry)),
        ("retried for", _seconds(retry.get("elapsed_max"))),
        ("in line at most", _seconds(limits.get("queue_delay_max"))),
        ("at once at most", str(limits.get("concurrency_max") or "")),
        ("per second at most", f"{limits['rate_max']:g}" if limits.get("rate_max") else ""),
        ("timeout", _seconds(limits.get("timeout_default"))),
        ("timeout at most", _seconds(limits.get("timeout_max"))),
        ("approval", (contract["approval"] or {}).get("text", "")),
        ("no approval", (contract["no_approval"] or {}).get("reason", "")),
        ("sensitive", ", ".join((contract["data"] or {}).get("sensitive_paths", ()))),
        ("cancellable", "yes" if contract["cancellable"] else "no"),
        ("streaming", "yes" if contract["streaming"] else "no"),
    ]


def _key_rule(contract: dict[str, Any]) -> str:
    said = (contract["idempotency"] or {}).get("requirement", "")
    return said or ("OPTIONAL" if contract["effect"] == "READ" else "REQUIRED")


def _pauses(retry: dict[str, Any]) -> str:
    first, longest = _seconds(retry.get("initial_delay")), _seconds(retry.get("delay_max"))
    return f"{first}, times {retry['multiplier']:g}, at most {longest}" if first and longest else ""


def _seconds(seconds: float | None) -> str:
    return f"{seconds:g} s" if seconds else ""
