"""How the demo speaks: commands as a person would type them, what came of them, and a closing table."""

from __future__ import annotations

from placet_server.cli.demo.claim import Claims
from placet_server.cli.escape import escape_block
from placet_server.cli.output import console, has_colour, print_table, say


class Teller:
    """Silent when `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def act(self, text: str) -> None:
        """A new part of the story."""
        self._print(f"\n{text}", "bold")

    def command(self, text: str, who: str = "") -> None:
        """Of somebody else than the developer: `who`."""
        self._print(f"  {who}$ {text}" if who else f"  $ {text}", "cyan")

    def outcome(self, text: str) -> None:
        for line in text.split("\n"):
            self._print(f"    {line}")

    def aside(self, text: str) -> None:
        """What happens elsewhere."""
        self._print(f"  · {text}", "dim")

    def close(self, claims: Claims, seconds: float) -> None:
        if self._quiet:
            return
        say()
        rows = [("held" if claim.held else "BROKEN", claim.text, claim.seen) for claim in claims.made]
        print_table(("CLAIM", "", "SEEN"), rows, empty="nothing was claimed")
        held = sum(claim.held for claim in claims.made)
        say(f"\n{held} of {len(claims.made)} claims held, in {seconds:.1f} s")

    def _print(self, text: str, style: str = "") -> None:
        if self._quiet:
            return
        if style and has_colour():
            console().print(escape_block(text), style=style, soft_wrap=True)
        else:
            say(text)
