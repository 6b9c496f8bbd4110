"""`placet status`: one screen that says how things stand, and what to do."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from placet_server.cli import health
from placet_server.cli.capability import lack_words
from placet_server.cli.escape import escape
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import AllTenants, Json, Target
from placet_server.cli.output import moment, print_document, print_facts, say, warn
from placet_server.cli.server import agent_facts

if TYPE_CHECKING:
    from placet import Client

COUNTED_MAX = 1000
QUEUES_SHOWN_MAX = 5
SHOWN_MAX = 3
LAG_SHOWN_SECONDS = 1.0


def status(all_tenants: AllTenants = False, target: Target = None, is_json: Json = False) -> int:
    """How things stand, and what to do next: one screen.

    Health, server processes, whether agents can run and of which models, capabilities without a handler, agents whose
    runs would lack something, queues, effects in doubt, dead letters, the newest report, what waits for people. Exit
    code 0 if the server is well, whatever waits for you; 11 if it is not, or cannot be reached. Health is asked as
    `placet health` does.

    \b
    Examples:
      placet status
      placet status --all-tenants
      placet status --json | jq -r '.next_steps[]'
    """
    where = health.default_target()
    checks = health.check(where)
    found: dict[str, Any] = {"health": {"target": where, "ok": health.is_well(checks), "checks": checks}}
    trouble = _look(found, "-" if all_tenants else "", target)
    if is_json:
        print_document(found if trouble is None else {**found, "trouble": trouble})
    else:
        print_facts(_facts(found))
        for step in found.get("next_steps", ()):
            say(f"  {escape(step)}")
        if trouble is not None:
            warn(f"placet: {trouble}")
    return ExitCode.SUCCEEDED if trouble is None and health.is_well(checks) else ExitCode.UNAVAILABLE


def _look(found: dict[str, Any], tenant: str, target: str | None) -> str | None:
    """Fills in what the server says; why it could not be asked."""
    from placet import errors
    from placet_server.cli.session import connect

    try:
        with connect(target) as client:
            found |= _asked(client, tenant)
    except (errors.TransportError, errors.UnavailableError) as error:
        return str(error)
    found["next_steps"] = list(_next_steps(found, tenant))
    return None


def _asked(client: Client, tenant: str) -> dict[str, Any]:
    from placet_server.cli.document import document_of

    doubted = [
        document_of(each) for each in islice(client.ambiguous(tenant=tenant, page_size=1000), COUNTED_MAX + 1)
    ]
    dead = [
        document_of(each)
        for each in islice(client.dead_letters(tenant=tenant, page_size=1000), COUNTED_MAX + 1)
    ]
    newest = next(iter(client.reports(tenant=tenant, page_size=1)), None)
    servers = _servers(client)
    capabilities = _capabilities(client)
    return {
        "server": document_of(client.server_info()),
        "servers": servers,
        "unserved": None if capabilities is None else _unserved(capabilities, servers or []),
        "lacking": None if capabilities is None else _lacking(capabilities),
        "queues": [document_of(queue) for queue in client.queues(tenant)],
        "ambiguous": {
            "count": len(doubted),
            "oldest_time": min((each["since_time"] or "" for each in doubted), default=""),
            "operators": sum(each["next_time"] is None for each in doubted),
            "first": [each["action"]["action_id"] for each in doubted if each["next_time"] is None][
                :SHOWN_MAX
            ],
        },
        "dead_letters": {
            "count": len(dead),
            "newest_time": (dead[0]["settle_time"] or "") if dead else "",
            "first": [each["action_id"] for each in dead[:SHOWN_MAX]],
        },
        "report": None if newest is None else document_of(newest),
        "approvals": _approvals(client),
    }


def _approvals(client: Client) -> dict[str, Any] | None:
    """What waits for people, in this tenant; of very many, some. None: not ours to see."""
    from placet import errors
    from placet_server.cli.document import document_of

    try:
        pending = [document_of(each) for each in islice(client.approvals(page_size=1000), COUNTED_MAX + 1)]
    except errors.PermissionDeniedError:
        return None
    return {
        "pending": len(pending),
        "yours": sum(each["eligibility"]["eligible"] for each in pending),
        "first_expire_time": pending[0]["expire_time"] if pending else "",
    }


def _servers(client: Client) -> list[dict[str, Any]] | None:
    """None: not ours to see."""
    from placet import errors
    from placet_server.cli.document import document_of

    try:
        return [document_of(each) for each in client.servers()]
    except errors.PermissionDeniedError:
        return None


def _capabilities(client: Client) -> list[dict[str, Any]] | None:
    """Current ones of this tenant; of very many, some. None: not ours to see."""
    from placet import errors
    from placet_server.cli.document import document_of

    try:
        found = [document_of(each) for each in islice(client.capabilities(), COUNTED_MAX)]
    except errors.PermissionDeniedError:
        return None
    return [each for each in found if each["current"]]


def _unserved(capabilities: list[dict[str, Any]], servers: list[dict[str, Any]]) -> list[str]:
    """Those whose handlers neither the server asked reaches nor another one has: mostly a connector that does not
    answer; and agents that no run can begin of.
    """
    elsewhere = {name for server in servers if not server["silent"] for name in server["serves"]}
    listed = [f"{each['name']}@{each['version']}" for each in capabilities if not each["served"]]
    return [name for name in listed if name not in elsewhere]


def _lacking(capabilities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Agents that can be asked, and whose runs would lack something."""
    return [
        {"agent": f"{each['name']}@{each['version']}", "lacks": each["lacks"]}
        for each in capabilities
        if each["served"] and each["lacks"]
    ]


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    words = ", ".join(f"{name} {word}" for name, word in found["health"]["checks"].items())
    facts = [("health", f"{words}  ({found['health']['target']})")]
    if "server" not in found:
        return facts
    server, doubted, dead = found["server"], found["ambiguous"], found["dead_letters"]
    facts.append(("server", f"{server['version']}, keeps {server['durability']}, boot {server['boot_id']}"))
    facts.append(("processes", _processes(found["servers"])))
    facts += agent_facts(server)
    if found["unserved"]:
        facts.append(("no handler", _named(found["unserved"])))
    for lacking in (found["lacking"] or ())[:SHOWN_MAX]:
        facts.append(("agent lacks", f"{lacking['agent']}: {_named(lack_words(lacking))}"))
    lag = (server["feed_lag"] or "0s").removesuffix("s")
    if float(lag) >= LAG_SHOWN_SECONDS:
        facts.append(("feed", f"held up for {float(lag):.0f} s by an open transaction of the store"))
    facts += [("queues", line) for line in _queues(found["queues"])]
    since = f", the oldest since {moment(doubted['oldest_time'])}" if doubted["count"] else ""
    yours = f"; {_count(doubted['operators'])} yours to find out" if doubted["count"] else ""
    facts.append(("in doubt", f"{_count(doubted['count'])}{since}{yours}"))
    newest = f", the newest of {moment(dead['newest_time'])}" if dead["count"] else ""
    facts.append(("dead letters", f"{_count(dead['count'])}{newest}"))
    report = found["report"]
    told = "none yet" if report is None else f"{report['report_id']} of {moment(report['create_time'])}"
    facts.append(("newest report", told))
    if found["approvals"] is not None:
        facts.append(("people", _people(found["approvals"])))
    facts.append(("next", "" if found["next_steps"] else "nothing waits for you"))
    return [(name, escape(value)) for name, value in facts]


def _processes(servers: list[dict[str, Any]] | None) -> str:
    if servers is None:
        return "for operators to see"
    told = f"{len(servers)} at work"
    for word in ("draining", "silent"):
        count = sum(server[word] for server in servers)
        told += f", {count} {word}" if count else ""
    return told


def _people(approvals: dict[str, Any]) -> str:
    from placet_server.cli.approval import time_left

    pending = f"{_count(approvals['pending'])} to decide"
    if not approvals["pending"]:
        return pending
    return (
        f"{pending}, {approvals['yours']} by you; the first ends {time_left(approvals['first_expire_time'])}"
    )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


def _queues(queues: list[dict[str, Any]]) -> list[str]:
    """The fullest first."""
    fullest = sorted(queues, key=lambda queue: -(queue["ready"] + queue["delayed"]))
    lines = []
    for queue in fullest[:QUEUES_SHOWN_MAX]:
        paused = f", paused: {queue['paused_reason']}".rstrip(": ") if queue["paused"] else ""
        lines.append(f"{queue['name']}: {queue['ready']} ready, {queue['delayed']} delayed{paused}")
    if len(queues) > QUEUES_SHOWN_MAX:
        lines.append(f"and {len(queues) - QUEUES_SHOWN_MAX} more")
    return lines or ["nothing waits"]


def _next_steps(found: dict[str, Any], tenant: str) -> list[str]:
    everywhere = " --all-tenants" if tenant else ""
    steps = [] if found["health"]["ok"] else ["placet health --wait 30s"]
    steps += [f"placet queues resume {queue['name']}" for queue in found["queues"] if queue["paused"]][
        :SHOWN_MAX
    ]
    steps += [
        f"placet capabilities {name.partition('@')[0]}" for name in (found["unserved"] or ())[:SHOWN_MAX]
    ]
    steps += [
        f"placet capabilities {each['agent'].partition('@')[0]}"
        for each in (found["lacking"] or ())[:SHOWN_MAX]
    ]
    if found["ambiguous"]["count"]:
        steps.append(f"placet ambiguous{everywhere}")
        steps += [
            f"placet resolve {action_id} done|not-done --reason … --evidence …"
            for action_id in found["ambiguous"]["first"]
        ]
    if found["dead_letters"]["count"]:
        steps.append(f"placet dead{everywhere}")
        steps += [f"placet show {action_id} --events" for action_id in found["dead_letters"]["first"]]
    if steps:
        steps.append(f"placet recover --look{everywhere}")
    if found["approvals"] and found["approvals"]["yours"]:
        steps.insert(0, "placet inbox")
    return steps


def _count(count: int) -> str:
    return f"more than {COUNTED_MAX}" if count > COUNTED_MAX else str(count)
