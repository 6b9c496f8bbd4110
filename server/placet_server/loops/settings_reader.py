"""Looks at files of settings that nobody may need for long: so that what is wrong with one is in the log soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placet_server.loops.loop import repeat

POLL_SECONDS = 5.0


class SettingsReader:
    """`looks`: of each file; each tells by itself what is wrong with it."""

    def __init__(self, looks: Sequence[Callable[[], object]]) -> None:
        self._looks = looks

    async def run(self) -> None:
        await repeat("settings_reader", self.step, POLL_SECONDS)

    async def step(self) -> bool:
        for look in self._looks:
            look()
        return False
