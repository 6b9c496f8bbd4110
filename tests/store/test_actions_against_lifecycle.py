"""The table of states and Postgres say the same: no statement makes a move, and no row has a shape, that it lacks."""

from itertools import product
from typing import Any

import asyncpg
import orjson
import pytest

from placet_server.model.lifecycle import LATE, TERMINAL, TRANSITIONS, ActionState
from placet_server.store import queries
from placet_server.store.connection import ConnectionOptions, connect
from tests.postgres import Database

pytestmark = pytest.mark.both_servers

ADVANCE = queries.load("action")["advance"]
TENANT = "acme"
ID = "0190a0a0-0000-7000-8000-000000000001"
LEASE = "0190a0a0-0000-4000-8000-000000000002"
BOOT = "0190a0a0-0000-4000-8000-000000000003"
S = ActionState

# What every row of a state has beside what all rows have.
SHAPES: dict[ActionState, dict[str, Any]] = {
    S.QUEUED: {"ready": True},
    S.RUNNING: {"lease": LEASE},
    S.WAITING: {"ready": True},
    S.AMBIGUOUS: {"lease": LEASE, "effect": "UNKNOWN", "unknown": True, "reason": "EFFECT_AMBIGUOUS"},
    S.SUCCEEDED: {"lease": LEASE, "effect": "DONE", "output": "1", "settled": True},
    S.FAILED: {"lease": LEASE, "reason": "HANDLER_FAILED", "settled": True},
    S.CANCELLED: {"lease": LEASE, "reason": "CANCELLED_BY_CALLER", "settled": True},
    S.EXHAUSTED: {"lease": LEASE, "reason": "RETRY_BUDGET", "settled": True},
    S.DENIED: {"lease": LEASE, "reason": "APPROVAL_DENIED", "settled": True},
    S.REFUSED: {"lease": LEASE, "reason": "POLICY_REFUSED", "settled": True},
}
COLUMNS = """tenant, action_id, capability, version, contract_digest, effect_class, subject, caller, key_ttl, input,
input_digest, labels, on_caller_gone, durability, create_time, effect_marked, attempts_max, state, attempt, lease_id,
instance_id, ready_time, start_time, deadline, settle_time, effect, effect_begun, effect_unknown, reason, output,
sequence, receipt_digest"""


async def put(connection: Any, state: ActionState, effect_class: str = "UNSAFE", **changes: Any) -> None:
    """A row of that state, with these members changed."""
    shape: dict[str, Any] = {
        "lease": None,
        "effect": "NOT_DONE",
        "unknown": False,
        "begun": False,
        "reason": None,
    }
    shape |= {"output": None, "settled": False, "ready": False, "attempt": 1, "attempts_max": 3}
    shape |= SHAPES[state] | changes
    await connection.execute("delete from actions")
    await connection.execute("delete from events")
    await connection.execute(
        f"""insert into actions ({COLUMNS}) values ($1, $2, 'c', '1', '', $3, 's', '{{}}', '1 day', '{{}}', '', '{{}}',
        'CANCEL', 'EPHEMERAL', now(), false, $4, $5, $6, $7, $8, case when $9 then now() end, now(), now(),
        case when $10 then now() end, $11, $12, $13, $14, $15, 1, '')""",
        TENANT,
        ID,
        effect_class,
        shape["attempts_max"],
        state.value,
        shape["attempt"],
        shape["lease"],
        BOOT,
        shape["ready"],
        shape["settled"],
        shape["effect"],
        shape["begun"],
        shape["unknown"],
        shape["reason"],
        shape["output"],
    )


async def advance(connection: Any, target: ActionState, **changes: Any) -> bool:
    """As the lease holder moves the row; whether it moved."""
    shape = SHAPES[target]
    document = {
        "tenant": TENANT,
        "action_id": ID,
        "lease_id": LEASE,
        "state": target.value,
        "effect": shape.get("effect", "NOT_DONE"),
        "effect_unknown": shape.get("unknown", False),
        "reason": shape.get("reason"),
        "output": shape.get("output"),
        "event_type": "settled",
        "event_body": "{}",
    } | changes
    arguments = ADVANCE.arguments(now=None, advances=orjson.dumps([document]).decode())
    return bool(await connection.fetch(ADVANCE.sql, *arguments))


async def test_the_lease_holder_makes_the_moves_of_the_table_and_no_other(database: Database) -> None:
    connection = await connect(database.dsn, ConnectionOptions(pinned_plans=True))
    # A lease holder marks and checkpoints without moving; who acquires or closes a ready row, or redrives an ended one,
    # holds no lease.
    expected = {
        (source, target)
        for source, targets in TRANSITIONS.items()
        for target in targets
        if source in (S.RUNNING, S.AMBIGUOUS)
    } | {(S.RUNNING, S.RUNNING)}
    unproved = {(S.AMBIGUOUS, target) for target in TRANSITIONS[S.AMBIGUOUS] - LATE}
    # Who has read the row as it is may say of what is in doubt that nothing was done.
    for as_read, allowed in (({}, expected - unproved), ({"sequence": 1}, expected)):
        moved = set()
        for source, target in product(ActionState, repeat=2):
            await put(connection, source)
            if await advance(connection, target, **as_read):
                moved.add((source, target))
            else:
                assert source.value == await connection.fetchval("select state from actions")
        assert allowed == moved
    await connection.close()


async def test_a_foreign_lease_or_a_row_that_moved_on_changes_nothing(database: Database) -> None:
    connection = await connect(database.dsn)
    await put(connection, S.RUNNING)
    assert not await advance(connection, S.SUCCEEDED, lease_id=BOOT)
    assert not await advance(connection, S.SUCCEEDED, tenant="evil")
    assert not await advance(connection, S.SUCCEEDED, sequence=0)
    assert not await advance(connection, S.SUCCEEDED, sequence=2)
    assert await advance(connection, S.SUCCEEDED, sequence=1)
    await connection.close()


async def test_a_cancelled_action_is_not_made_ready_again(database: Database) -> None:
    connection = await connect(database.dsn)
    await put(connection, S.RUNNING)
    await connection.execute("update actions set cancel_requested_time = now()")
    assert not await advance(connection, S.QUEUED)
    assert not await advance(connection, S.WAITING)
    assert await advance(connection, S.CANCELLED)
    await connection.close()


async def test_what_was_submitted_may_wait_and_end_without_an_attempt(database: Database) -> None:
    connection = await connect(database.dsn)
    for state in (S.QUEUED, S.WAITING, S.CANCELLED, S.EXHAUSTED, S.DENIED, S.REFUSED):
        await put(connection, state, attempt=0)
    await connection.close()


@pytest.mark.parametrize("effect_class", ["READ", "COMPOSED", "IDEMPOTENT", "RECONCILABLE", "UNSAFE"])
async def test_every_state_of_the_table_has_a_legal_row(database: Database, effect_class: str) -> None:
    connection = await connect(database.dsn)
    for state in ActionState:
        if effect_class in ("READ", "COMPOSED") and state is S.AMBIGUOUS:
            continue
        changes = {"effect": None} if effect_class == "READ" else {}
        await put(connection, state, effect_class, **changes)
    await connection.close()


async def test_what_others_did_for_it_may_be_any_in_every_end(database: Database) -> None:
    connection = await connect(database.dsn)
    for state, effect in product(TERMINAL, ("NOT_DONE", "DONE", "UNKNOWN")):
        await put(connection, state, "COMPOSED", effect=effect)
    await connection.close()


ILLEGAL: list[tuple[str, ActionState, str, dict[str, Any]]] = [
    ("a ready row with a lease", S.QUEUED, "UNSAFE", {"lease": LEASE}),
    ("a ready row without a time", S.QUEUED, "UNSAFE", {"ready": False}),
    ("a ready row that is unknown and says not done", S.QUEUED, "IDEMPOTENT", {"unknown": True}),
    ("a waiting row with a lease", S.WAITING, "UNSAFE", {"lease": LEASE}),
    ("a waiting row without a time", S.WAITING, "UNSAFE", {"ready": False}),
    ("a waiting row that is unknown", S.WAITING, "IDEMPOTENT", {"unknown": True, "effect": "UNKNOWN"}),
    ("a waiting row that has done something", S.WAITING, "UNSAFE", {"effect": "DONE"}),
    ("a waiting row with a reason", S.WAITING, "UNSAFE", {"reason": "APPROVAL_DENIED"}),
    ("a running row without a lease", S.RUNNING, "UNSAFE", {"lease": None}),
    ("a running row that is settled", S.RUNNING, "UNSAFE", {"settled": True}),
    ("a running row with a reason", S.RUNNING, "UNSAFE", {"reason": "SHUTDOWN"}),
    ("a running row with an output", S.RUNNING, "UNSAFE", {"output": "1"}),
    ("an effect of nothing", S.RUNNING, "UNSAFE", {"effect": None}),
    ("no attempt", S.RUNNING, "UNSAFE", {"attempt": 0}),
    ("fewer than no attempts", S.QUEUED, "UNSAFE", {"attempt": -1}),
    ("an effect of no attempt", S.QUEUED, "UNSAFE", {"attempt": 0, "begun": True}),
    (
        "an unknown effect of no attempt",
        S.QUEUED,
        "IDEMPOTENT",
        {"attempt": 0, "unknown": True, "effect": "UNKNOWN"},
    ),
    *(
        (f"{state} without an attempt", state, "UNSAFE", {"attempt": 0})
        for state in (S.SUCCEEDED, S.FAILED, S.AMBIGUOUS)
    ),
    ("no attempts at all", S.RUNNING, "UNSAFE", {"attempts_max": 0}),
    ("an unknown class", S.RUNNING, "MAYBE", {}),
    ("ambiguous but known", S.AMBIGUOUS, "UNSAFE", {"effect": "NOT_DONE"}),
    ("ambiguous but done", S.AMBIGUOUS, "UNSAFE", {"effect": "DONE"}),
    ("ambiguous but not unknown", S.AMBIGUOUS, "UNSAFE", {"unknown": False}),
    ("ambiguous and settled", S.AMBIGUOUS, "UNSAFE", {"settled": True}),
    ("ambiguous without a reason", S.AMBIGUOUS, "UNSAFE", {"reason": None}),
    ("what does nothing itself in doubt", S.AMBIGUOUS, "COMPOSED", {}),
    ("what does nothing itself, unknown", S.QUEUED, "COMPOSED", {"effect": "UNKNOWN", "unknown": True}),
    ("an effect of what did not begin", S.CANCELLED, "COMPOSED", {"attempt": 0, "effect": "DONE"}),
    ("composed and ended without a reason", S.FAILED, "COMPOSED", {"reason": None}),
    ("composed success without output", S.SUCCEEDED, "COMPOSED", {"output": None}),
    ("an ambiguous read", S.AMBIGUOUS, "READ", {}),
    ("a read that began an effect", S.RUNNING, "READ", {"effect": None, "begun": True}),
    ("a read with an effect", S.SUCCEEDED, "READ", {}),
    ("success without output", S.SUCCEEDED, "UNSAFE", {"output": None}),
    ("success without effect", S.SUCCEEDED, "UNSAFE", {"effect": "NOT_DONE"}),
    ("success with a reason", S.SUCCEEDED, "UNSAFE", {"reason": "SHUTDOWN"}),
    ("success that is still unknown", S.SUCCEEDED, "UNSAFE", {"unknown": True}),
    *(
        (f"{state} {what}", state, "UNSAFE", changes)
        for state in sorted(TERMINAL - {S.SUCCEEDED})
        for what, changes in (
            ("while it may have happened", {"effect": "UNKNOWN"}),
            ("while an earlier attempt is unknown", {"unknown": True}),
            ("without a time", {"settled": False}),
            ("without a reason", {"reason": None}),
            ("with an output", {"output": "1"}),
            ("without a lease", {"lease": None}),
        )
    ),
    *(
        (f"{state} although done", state, "UNSAFE", {"effect": "DONE"})
        for state in (S.CANCELLED, S.EXHAUSTED, S.DENIED, S.REFUSED)
    ),
]


async def test_postgres_refuses_every_row_that_cannot_be_true(database: Database) -> None:
    connection = await connect(database.dsn)
    accepted = []
    for what, state, effect_class, changes in ILLEGAL:
        try:
            await put(connection, state, effect_class, **changes)
            accepted.append(what)
        except asyncpg.CheckViolationError:
            pass
    await connection.close()
    assert [] == accepted
