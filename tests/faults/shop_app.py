"""The shop of `tests.core.agents`, as an app that servers load."""

from tests.core.agents import Shop

app = Shop().app
