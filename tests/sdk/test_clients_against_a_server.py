"""Both clients against a real server: outcomes, cancellation, keys and looking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from placet import Overlay, PolicySet, errors
from placet.testing import Server, server
from placet.v1 import action_pb2
from placet.v1.error_reason_pb2 import ErrorReason
from tests.sdk import desk
from tests.sdk.conftest import Both

Connect = Callable[[str], Both]


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setenv(desk.FOLDER_VARIABLE, str(tmp_path))
    async with server(desk.app) as started:
        yield started


@pytest.fixture
def both(connect: Connect, running: Server) -> Both:
    made = connect(running.target)
    made.client._token = running.token
    return made


async def test_a_key_means_one_effect_and_other_input_is_a_conflict(both: Both, tmp_path: Path) -> None:
    first = await both.ask("call", "desk.pay", {"amount": "1.00"}, key="k", labels={"order": "7"})
    again = await both.ask("call", "desk.pay", {"amount": "1.00"}, key="k")
    assert (first.action_id, False, True) == (again.action_id, first.attached, again.attached)
    with pytest.raises(errors.ConflictError) as caught:
        await both.ask("call", "desk.pay", {"amount": "2.00"}, key="k")
    assert first.action_id == caught.value.action_id
    assert 1 == desk.marks(tmp_path, "pay")
    assert first.action_id == (await both.ask("get_by_key", "desk.pay", "k")).action_id


async def test_a_message_makes_one_action_and_is_nobody_elses(both: Both, tmp_path: Path) -> None:
    first = await both.ask("call", "desk.pay", {"amount": "1.00"}, key="m", message_id="m-1")
    again = await both.ask("submit", "desk.pay", {"amount": "1.00"}, key="m", message_id="m-1")
    assert (first.action_id, True) == (again.action_id, again.attached)
    with pytest.raises(errors.ConflictError) as caught:
        await both.ask("call", "desk.pay", {"amount": "1.00"}, key="n", message_id="m-1")
    assert "MESSAGE_REPLAYED" == caught.value.reason
    assert 1 == desk.marks(tmp_path, "pay")
    with pytest.raises(ValueError, match="message_id"):
        await both.ask("call", "desk.pay", {"amount": "1.00"}, message_id="m 1")


async def test_a_capability_that_takes_no_key_is_called_all_the_same(both: Both) -> None:
    assert 3 == (await both.ask("call", "desk.add", {"a": 1, "b": 2})).output


async def test_violations_are_named_by_pointer(both: Both) -> None:
    with pytest.raises(errors.InvalidRequestError) as caught:
        await both.ask("call", "desk.add", {"a": "x", "b": 2, "c": 3})
    assert "INPUT_SCHEMA_VIOLATION" == caught.value.reason
    assert "/a" in {violation.field for violation in caught.value.violations}


async def test_json_text_is_read_strictly_by_the_server(both: Both) -> None:
    with pytest.raises(errors.InvalidRequestError) as caught:
        await both.ask("call", "desk.add", b'{"a":1,"a":1,"b":2}')
    assert "JSON_NOT_INTEROPERABLE" == caught.value.reason


async def test_a_failure_says_what_became_of_the_effect(both: Both, tmp_path: Path) -> None:
    with pytest.raises(errors.FailedError) as caught:
        await both.ask("call", "desk.decline", {})
    assert ("card_declined", "NOT_DONE", "NEW_KEY") == (
        caught.value.failure_code,
        caught.value.effect,
        caught.value.retry_advice,
    )
    assert 1 == desk.marks(tmp_path, "decline")


async def test_a_temporary_failure_is_tried_again_a_bounded_number_of_times(
    both: Both, tmp_path: Path
) -> None:
    with pytest.raises(errors.PlacetError):
        await both.ask("call", "desk.decline", {"category": "temporary"}, timeout=20)
    assert 1 < desk.marks(tmp_path, "decline") < 20


async def test_unknown_things_and_strangers_are_refused_by_kind(both: Both) -> None:
    with pytest.raises(errors.NotFoundError):
        await both.ask("call", "desk.nothing", {})
    with pytest.raises(errors.NotFoundError):
        await both.ask("get", "0199b0c0-0000-7000-8000-000000000001")
    both.client._token = "nobody"
    with pytest.raises(errors.UnauthenticatedError):
        await both.ask("whoami")


async def test_the_deadline_stops_the_work_and_says_so(both: Both, tmp_path: Path) -> None:
    with pytest.raises(errors.PlacetError) as caught:
        await both.ask("call", "desk.wait", {}, timeout=3.0)
    # On a busy machine the handler may need longer to stop than the caller can wait.
    assert isinstance(caught.value, errors.ActionCancelled | errors.PendingError)
    action = await both.ask("wait", caught.value.action_id)
    assert "DEADLINE_EXCEEDED" == ErrorReason.Name(action.outcome.reason).removeprefix("ERROR_REASON_")
    assert action_pb2.ACTION_STATE_CANCELLED == action.state
    assert 1 == desk.marks(tmp_path, "stopped")


async def test_detached_work_outlives_the_wait_until_it_is_cancelled(both: Both, tmp_path: Path) -> None:
    with pytest.raises(errors.PendingError) as caught:
        await both.ask("call", "desk.wait", {}, timeout=3.0, on_caller_gone="detach")
    action_id = caught.value.action_id
    assert action_pb2.ACTION_STATE_RUNNING == (await both.ask("get", action_id)).state
    await both.ask("cancel", action_id, "enough")
    action = await both.ask("wait", action_id, timeout=10.0)
    assert action_pb2.ACTION_STATE_CANCELLED == action.state
    assert 1 == desk.marks(tmp_path, "stopped")


async def test_cancelling_the_awaiting_task_stops_the_handler(running: Server, tmp_path: Path) -> None:
    calling = asyncio.ensure_future(running.client().call("desk.linger", {}))
    await asyncio.to_thread(desk.marked, tmp_path, "waiting")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await asyncio.to_thread(desk.marked, tmp_path, "stopped", 5.0)


async def test_a_stream_and_a_later_watch_tell_the_same(both: Both, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    events, stream, error = await both.events("stream", "desk.count", {"to": 4})
    assert (None, 4) == (error, stream.output)
    watched, _, _ = await both.events("watch", stream.action_id)
    assert [event.cursor for event in events] == [event.cursor for event in watched]
    rest, _, _ = await both.events("watch", stream.action_id, after=events[2].cursor)
    assert [event.cursor for event in events[3:]] == [event.cursor for event in rest]


async def test_a_failed_stream_raises_after_its_last_event(both: Both) -> None:
    events, _, error = await both.events("stream", "desk.decline", {})
    assert "settled" == events[-1].WhichOneof("event")
    assert isinstance(error, errors.FailedError)


async def test_pages_are_fetched_as_they_are_needed(both: Both) -> None:
    for number in range(5):
        await both.ask("call", "desk.pay", {"amount": f"{number}.00"}, labels={"even": str(number % 2 == 0)})
    everything = await both.pages("list", page_size=2)
    even = await both.pages("list", labels={"even": "True"}, states=["succeeded"], capabilities=["desk.pay"])
    assert (5, 3) == (len(everything), len(even))
    names = [capability.name for capability in await both.pages("capabilities", page_size=2)]
    assert sorted(["human.input", "placet.agent", *(tool.name for tool in desk.app.tools)]) == names
    assert ["desk", "placet"] == [manifest.name for manifest in await both.pages("manifests")]


async def test_the_catalogue_and_the_caller_can_be_looked_at(both: Both) -> None:
    assert "desk.add" == (await both.ask("capability", "desk.add")).name
    assert "desk" == (await both.ask("manifest", "desk")).manifest.name
    assert "dev_token" == (await both.ask("whoami")).identity_source
    assert action_pb2.DURABILITY_CLASS_SHARED == (await both.ask("server_info")).durability


async def test_a_kept_key_is_free_again_when_its_time_is_over(running: Server, tmp_path: Path) -> None:
    client = running.client()
    first = await client.call("desk.pay", {"amount": "1.00"}, key="k")
    running.clock.advance(8 * 86_400)
    second = await client.call("desk.pay", {"amount": "2.00"}, key="k")
    assert first.action_id != second.action_id
    assert 2 == desk.marks(tmp_path, "pay")


async def test_policies_are_tried_put_in_force_explained_and_taken_back(both: Both) -> None:
    added = await both.ask("call", "desk.add", {"a": 1, "b": 2})
    payers = '@id("payers") permit (principal, action == Action::"desk.pay", resource);'
    governing = '@id("governing") permit (principal, action in Action::"placet", resource);'
    nobody = PolicySet("nobody", payers + governing)
    assert [] == list((await both.ask("validate_policy_set", nobody)).problems)
    (change,) = await both.pages("dry_run_policy_set", policy_set=nobody, capabilities=["desk.add"])
    assert (added.action_id, True, "not_permitted") == (
        change.action_id,
        change.before.allowed,
        change.after.problem,
    )
    admitted = await both.ask("admit_policy_set", nobody)
    assert (1, True) == (admitted.revision, admitted.changed)
    assert not (await both.ask("admit_policy_set", nobody)).changed
    with pytest.raises(errors.PermissionDeniedError) as caught:
        await both.ask("call", "desk.add", {"a": 1, "b": 2})
    assert "POLICY_REFUSED" == caught.value.reason
    told = await both.ask("explain", caught.value.metadata["refusal_id"])
    assert (False, "desk.add", "not_permitted") == (told.is_action, told.capability, told.decision.problem)
    told = await both.ask("explain", added.action_id)
    # What decided about it is not in force any more.
    assert (True, [("reads", "")]) == (told.is_action, [(p.name, p.cedar) for p in told.decision.policies])
    with pytest.raises(errors.ConflictError):
        await both.ask("roll_back_policy_set", 0, expected_digest="0" * 64)
    back = await both.ask("roll_back_policy_set", 0, expected_digest=admitted.digest)
    assert 2 == back.revision
    assert ["default", "nobody"] == [each.name for each in await both.pages("policy_sets")]
    assert "nobody" == (await both.ask("policy_set", 1)).policy_set.name
    shown = (await both.ask("explain", added.action_id)).decision.policies[0].cedar
    assert shown.startswith('@id("reads")')
    with pytest.raises(errors.InvalidRequestError) as refused:
        await both.ask("admit_policy_set", PolicySet("p", "permit (principal, action, resource"))
    assert ("POLICY_SET_REFUSED", "policy_set.policies[0]") == (
        refused.value.reason,
        refused.value.violations[0].field,
    )


def test_a_hazard_that_does_not_exist_is_found_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="say one of 'write'"):
        PolicySet("p", "", [Overlay("*", ["wrte"])]).message()
    with pytest.raises(ValueError, match="list of words"):
        PolicySet("p", "", [Overlay("*", "write")]).message()
