"""What a turn of a run costs in the store, by counts and not by the clock: an entry that says what the model is asked;
one that says what it has answered, with its calls, which run at once; and the ends of these.
"""

from collections import Counter
from typing import Any

import asyncpg
import pytest
from asyncpg.prepared_stmt import PreparedStatement

from placet.testing.model_servers import KEY, OpenAIServer, Say, Step, call
from placet_server.core.publication import lane
from placet_server.model.lifecycle import ActionState
from placet_server.store import batch, queries
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_shop
from tests.core.kernels import work_off
from tests.postgres import Database

# Looks for work, and what is looked up once for many calls.
UNCOUNTED = ("queue.list_lines", "queue.next_due", "action.list_owned", "other")
STEMS = ("action", "batch", "event", "lineage", "queue", "run")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each was sent, by its name."""
    names = {query.sql: f"{stem}.{name}" for stem in STEMS for name, query in queries.load(stem).items()}
    counts: Counter[str] = Counter()

    def counted(kind: Any, method: str, sql_of: Any) -> None:
        sent = getattr(kind, method)

        async def send(self: Any, *arguments: Any, **options: Any) -> Any:
            counts[names.get(sql_of(self, arguments), "other")] += 1
            return await sent(self, *arguments, **options)

        monkeypatch.setattr(kind, method, send)

    for method in ("fetch", "fetchrow", "fetchval", "execute"):
        counted(asyncpg.Connection, method, lambda _, arguments: arguments[0])
    for method in ("fetch", "fetchrow", "fetchval"):
        counted(PreparedStatement, method, lambda self, _: self.get_query())
    return counts


async def of_a_run(database: Database, statements: Counter[str], turns: int) -> Counter[str]:
    """With one call in each turn but the last."""
    script: list[Step] = [Say("", call("shop-count", order=f"A-{turn}")) for turn in range(turns - 1)]
    async with (
        OpenAIServer([*script, Say("Done.")]) as server,
        open_shop(database.dsn, Shop(), server) as kernel,
    ):
        await work_off(kernel)
        # However slow the machine is, nobody looks in the store for what is about to end here.
        object.__setattr__(kernel.journal, "poll_seconds", 5.0)
        statements.clear()
        ended = await asked(kernel, key=f"of {turns}")
        assert ActionState.SUCCEEDED == ended.state
        return Counter(statements)


async def test_a_turn_is_asked_for_is_answered_with_its_calls_and_these_end(
    database: Database, statements: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is, what is held back meets the entry that follows it, and that the calls it makes.
    monkeypatch.setattr(lane, "HELD_SECONDS", 5.0)
    monkeypatch.setattr(batch, "LINGER_SECONDS_MAX", 5.0)
    short = await of_a_run(database, statements, 2)
    long = await of_a_run(database, statements, 7)
    more = {name: count - short[name] for name, count in long.items() if name not in UNCOUNTED}
    # Five more turns, five more calls; and nothing is read.
    wanted = {"batch.append": 5, "batch.append_and_admit_child": 5, "action.advance_step": 5}
    assert wanted == {name: count for name, count in more.items() if count}
