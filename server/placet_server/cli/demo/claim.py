"""What the demo claims, and whether it held."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`seen`: what was counted or answered, in words."""

    text: str
    held: bool
    seen: str


@dataclass(slots=True)
class Claims:
    """In the order in which they were made."""

    made: list[Claim] = field(default_factory=list)

    def add(self, text: str, *, seen: str, wanted: str) -> None:
        """Held if what was seen is what was wanted."""
        held = seen == wanted
        told = seen if held else f"{seen} (wanted: {wanted})"
        self.made.append(Claim(text=text, held=held, seen=told))

    @property
    def all_held(self) -> bool:
        return bool(self.made) and all(claim.held for claim in self.made)
