"""How many examples a property is tried with: enough at each run for what goes wrong often, as they differ from run to
run; with PLACET_LONG=1 as many as find what goes wrong seldom."""

from __future__ import annotations

import os

from hypothesis import settings

LONG = os.environ.get("PLACET_LONG") == "1"


def examples(few: int, *, long: int) -> settings:
    return settings(max_examples=long if LONG else few, deadline=None)
