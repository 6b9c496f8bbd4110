"""A server is killed at crash boundaries while its client waits: no effect twice, nothing wrongly called done."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from placet import errors
from placet.result import Result
from placet.testing import Process, process
from placet.testing.scratch import database
from placet.v1.action_pb2 import ACTION_STATE_SUCCEEDED
from tests.faults.processes import Zygote
from tests.sdk import desk
from tests.sdk.mortal import Mortal

# The lease of the dead boot must end before its work is anybody's; one second is the least that is allowed.
ENVIRONMENT = {"PLACET_LEASE_SECONDS": "1"}


@pytest.fixture
async def mortal(tmp_path: Path, zygote: Zygote) -> AsyncIterator[Mortal]:
    environment = ENVIRONMENT | {desk.FOLDER_VARIABLE: str(tmp_path)}
    async with database() as dsn:
        made = Mortal(zygote, tmp_path, dsn, "tests.sdk.desk:app", environment)
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Process]:
    """A server as users of `placet.testing` have it."""
    environment = ENVIRONMENT | {desk.FOLDER_VARIABLE: str(tmp_path)}
    async with process("tests.sdk.desk:app", environment=environment) as started:
        yield started


@pytest.mark.parametrize("boundary", ["intent_persisted", "before_provider_call", "result_persisted"])
async def test_an_idempotent_call_survives_the_death_of_its_server(
    mortal: Mortal, tmp_path: Path, boundary: str
) -> None:
    await mortal.start(kill_at=f"{boundary}:desk.pay")
    client = mortal.client()
    paying = asyncio.ensure_future(client.call("desk.pay", {"amount": "1.00"}, timeout=40))
    assert -signal.SIGKILL == await mortal.ended()
    await mortal.start()
    result = await paying
    again = await mortal.client().get(result.action_id)
    assert {"paid": "1.00", "key": f"placet-{result.action_id}"} == result.output
    assert again.output_json == result.action.output_json
    # The provider deduplicates on the key, so a second sending is no second effect.
    assert desk.marks(tmp_path, "pay") in (1, 2)


async def _ending_of_a_killed_message(mortal: Mortal, boundary: str) -> BaseException | Result:
    await mortal.start(kill_at=f"{boundary}:desk.tell")
    telling = asyncio.ensure_future(mortal.client().call("desk.tell", {"text": "hello"}, timeout=40))
    assert -signal.SIGKILL == await mortal.ended()
    await mortal.start()
    return (await asyncio.gather(telling, return_exceptions=True))[0]


async def test_an_unsafe_effect_that_had_begun_is_said_to_be_ambiguous(
    mortal: Mortal, tmp_path: Path
) -> None:
    ending = await _ending_of_a_killed_message(mortal, "provider_response_received")
    assert isinstance(ending, errors.AmbiguousError)
    assert ("UNKNOWN", "AFTER_WAIT") == (ending.effect, ending.retry_advice)
    assert 1 == desk.marks(tmp_path, "tell")


async def test_an_unsafe_effect_that_had_not_begun_is_done_once_or_known_not_to_be_done(
    mortal: Mortal, tmp_path: Path
) -> None:
    ending = await _ending_of_a_killed_message(mortal, "intent_persisted")
    if isinstance(ending, Result):
        assert 1 == desk.marks(tmp_path, "tell")
    else:
        assert isinstance(ending, errors.ExhaustedError)
        assert ("NOT_DONE", 0) == (ending.effect, desk.marks(tmp_path, "tell"))


@pytest.mark.parametrize(
    ("boundary", "stored"), [("before_intent_persistence", False), ("intent_persisted", True)]
)
async def test_a_submission_whose_server_dies_is_stored_once_and_run_once(
    mortal: Mortal, tmp_path: Path, boundary: str, stored: bool
) -> None:
    await mortal.start(kill_at=f"{boundary}:desk.tell")
    submitting = asyncio.ensure_future(mortal.client().submit("desk.tell", {"text": "hello"}, timeout=40))
    assert -signal.SIGKILL == await mortal.ended()
    await mortal.start()
    submitted = await submitting
    action = await mortal.client().wait(submitted.action_id, timeout=40)
    assert (stored, ACTION_STATE_SUCCEEDED, 1) == (submitted.attached, action.state, action.attempt)
    assert [action.action_id] == [found.action_id async for found in mortal.client().list()]
    assert 1 == desk.marks(tmp_path, "tell")


async def test_who_waits_for_submitted_work_waits_on_over_the_death_of_the_server(
    mortal: Mortal, tmp_path: Path
) -> None:
    await mortal.start(kill_at="before_provider_call:desk.pay")
    client = mortal.client()
    submitted = await client.submit("desk.pay", {"amount": "1.00"}, delay=0.5)
    waiting = asyncio.ensure_future(client.wait(submitted.action_id, timeout=40))
    assert -signal.SIGKILL == await mortal.ended()
    await mortal.start()
    action = await waiting
    assert (ACTION_STATE_SUCCEEDED, 2) == (action.state, action.attempt)
    assert desk.marks(tmp_path, "pay") in (1, 2)


async def test_a_stream_goes_on_over_the_death_of_its_server(program: Process, tmp_path: Path) -> None:
    await program.start()
    stream = program.client().stream("desk.count", {"to": 6}, timeout=40)
    seen = []
    async for event in stream:
        seen.append(event)
        if event.WhichOneof("event") == "chunk" and 3 == event.chunk.number and 1 == event.chunk.attempt:
            await program.kill()
            (tmp_path / "go").touch()
            await program.start()
    chunks = [
        (event.chunk.attempt, event.chunk.json) for event in seen if event.WhichOneof("event") == "chunk"
    ]
    sequences = [event.sequence for event in seen if event.sequence]
    last = chunks[-1][0]
    assert 2 <= last
    assert [(1, str(n)) for n in (1, 2, 3)] == [chunk for chunk in chunks if chunk[0] == 1]
    assert [(last, str(n)) for n in range(1, 7)] == [chunk for chunk in chunks if chunk[0] == last]
    assert list(range(1, len(sequences) + 1)) == sequences
    assert 6 == stream.output
