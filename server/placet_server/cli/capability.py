"""`placet capabilities`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.option import Json, Target
from placet_server.cli.output import pretty_json, print_document, print_facts, print_table, say, warn

if TYPE_CHECKING:
    from placet import Client


def capabilities(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this one whole, with its schemas.")
    ] = None,
    version: Annotated[str, typer.Option(help="With NAME: this version instead of the current one.")] = "",
    prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = "",
    agents: Annotated[
        bool, typer.Option("--agents", help="Only agents, with what they ask and may call.")
    ] = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """What can be called, and what is promised about it.

    \b
    Examples:
      placet capabilities
      placet capabilities payments.refund
      placet capabilities --prefix payments. --json
      placet capabilities --agents
    """
    from placet_server.cli.session import connect

    with connect(target) as client:
        if name is None:
            _list(client, prefix, agents, is_json)
        else:
            _show(client, name, version, is_json)


def _list(client: Client, prefix: str, agents: bool, is_json: bool) -> None:
    from placet_server.cli.document import document_of

    found = [document_of(each) for each in client.capabilities(prefix, kind="agent" if agents else None)]
    if is_json:
        print_document({"capabilities": found})
        return
    if agents:
        _list_agents(found)
        return
    rows = [
        (
            each["name"],
            each["version"] + ("" if each["current"] else " (not current)"),
            each["contract"]["effect"],
            each["contract"]["risk"],
            _key_rule(each["contract"]),
            _standing(each),
            each["presentation"]["title"] if each["presentation"] else "",
        )
        for each in found
    ]
    columns = ("NAME", "VERSION", "EFFECT", "RISK", "KEY", "", "TITLE")
    print_table(columns, rows, empty="nothing can be called here")


def _list_agents(found: list[dict[str, Any]]) -> None:
    rows = [
        (
            each["name"],
            each["version"] + ("" if each["current"] else " (not current)"),
            *_agent_words(each["agent"]),
            _standing(each),
            ", ".join(lack_words(each)),
        )
        for each in found
    ]
    print_table(
        ("NAME", "VERSION", "MODEL", "TOOLS", "DELEGATES", "BUDGET", "", "LACKS"),
        rows,
        empty="no agents here",
    )
    warn("placet.agent is one that is said with what it is asked: placet ask --inline FILE")


def _agent_words(spec: dict[str, Any] | None) -> tuple[str, ...]:
    """Its model, tools, delegates and budget; None: they are said with what it is asked."""
    if spec is None:
        return ("said when asked", "", "", "")
    return (
        spec["model"],
        ", ".join(tool["name"] for tool in spec["tools"]),
        ", ".join(delegate["agent"] for delegate in spec["delegates"]),
        budget_words(spec["budget"]),
    )


def _standing(found: dict[str, Any]) -> str:
    if found["withdrawn"]:
        return "WITHDRAWN"
    if found["served"]:
        return ""
    return "NOT RUN HERE" if found["kind"] == "AGENT" else "NO HANDLER HERE"


def lack_words(found: dict[str, Any]) -> list[str]:
    """What the runs of an agent would lack now, each as its problem and its name."""
    return [f"{each['problem']} {each['name']}".rstrip() for each in found["lacks"]]


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
            ("kind", "AGENT" if found["kind"] == "AGENT" else ""),
            ("title", shown.get("title", "")),
            ("description", shown.get("description", "")),
            *_agent(found["agent"]),
            *_promises(contract),
            ("served here", "yes" if found["served"] else "no"),
            *(("lacks", lack) for lack in lack_words(found)),
            ("manifest", found["manifest"]),
            ("contract", found["contract_digest"]),
        ]
    )
    if found["agent"] is not None and found["agent"]["instructions"]:
        say(f"\ninstructions\n{found['agent']['instructions']}")
    for what in ("input_schema", "output_schema"):
        if found[what] is not None:
            say(f"\n{what.replace('_', ' ')}\n{pretty_json(found[what])}")


def _agent(spec: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What makes it one; its instructions come below."""
    if spec is None:
        return []
    settings, memory, retry = spec["settings"] or {}, spec["memory"] or {}, spec["provider_retry"] or {}
    return [
        ("model", spec["model"]),
        ("credential", spec["credential"]),
        *(("tool", _choice(tool["name"], tool)) for tool in spec["tools"]),
        *(("delegate", _choice(each["agent"], each)) for each in spec["delegates"]),
        ("budget", budget_words(spec["budget"])),
        ("answer at most", f"{settings['max_tokens']} tokens" if settings.get("max_tokens") else ""),
        ("answer within", _seconds(settings.get("request_timeout"))),
        ("temperature", _number(settings.get("temperature"))),
        ("top p", _number(settings.get("top_p"))),
        ("reasoning", settings.get("reasoning_effort", "")),
        ("turn asked for", f"{retry['tries_max']} times" if retry.get("tries_max") else ""),
        ("turns kept", str(memory.get("keep_turns") or "")),
        ("output repairs", _number(spec.get("output_repairs_max"))),
    ]


def _choice(name: str, choice: dict[str, Any]) -> str:
    """A tool or a delegate, with what it is held to."""
    held = [f"version {choice['version']}"] if choice["version"] else []
    if choice["no_scopes"]:
        held.append("without scopes")
    elif choice["scopes"]:
        held.append(f"scopes {', '.join(choice['scopes'])}")
    if (budget := choice.get("budget")) and budget_words(budget):
        held.append(budget_words(budget))
    return f"{name} ({'; '.join(held)})" if held else name


def budget_words(budget: dict[str, Any] | None) -> str:
    """Its bounds in words; empty if it has none of its own."""
    if budget is None:
        return ""
    told = [
        f"{budget[member]} {words}"
        for member, words in (
            ("turns", "turns"),
            ("calls", "calls"),
            ("equal_calls", "equal calls"),
            ("tokens", "tokens"),
            ("cost_micros", "micros"),
        )
        if budget[member]
    ]
    return ", ".join([*told, *([_seconds(budget["active_time"])] if budget["active_time"] else [])])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


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
