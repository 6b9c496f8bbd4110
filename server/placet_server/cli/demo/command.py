"""The command `placet demo`."""

from __future__ import annotations

import signal
import time

from placet_server.cli.complaint import require_agent_extras
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json
from placet_server.cli.output import print_document


def demo(is_json: Json = False) -> int:
    """Kill a server amid payments, and count what happened.

    Before that a refund waits for two people, and so does the call of an agent, whose run goes on after the crash. Runs
    a server, a payment provider and a Postgres of its own in a temporary folder, and clears all away. Exit code 0 only
    if every claim held.

    \b
    Examples:
      placet demo
      placet demo --json | jq .claims
    """
    require_agent_extras()
    from placet_server.cli.demo import story
    from placet_server.cli.demo.stage import Stage
    from placet_server.cli.demo.teller import Teller

    begin = time.monotonic()
    # An orderly end by either signal: everything is cleared away. Who starts us in the background may ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    teller = Teller(quiet=is_json)
    with Stage() as stage:
        claims = story.tell(stage, teller)
        counts = stage.counts()
    seconds = time.monotonic() - begin
    teller.close(claims, seconds)
    if is_json:
        made = [{"claim": claim.text, "held": claim.held, "seen": claim.seen} for claim in claims.made]
        print_document(
            {"ok": claims.all_held, "seconds": round(seconds, 3), "claims": made, "provider": counts}
        )
    return ExitCode.SUCCEEDED if claims.all_held else ExitCode.FAILED
