"""Agents asked over the wire of a whole server, with a model at a scripted server of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import protovalidate
import pytest
from google.protobuf.duration_pb2 import Duration

from placet import App
from placet.testing.model_servers import KEY, OpenAIServer, Say, Step, call
from placet.v1 import action_pb2, agent_pb2, ask_pb2, outcome_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.core.agents import Shop
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, running
from tests.rpc.support import refusal

LOOK = Say("I look.", call("shop-find", order="A-1"))
SUCCEEDED, WAITING = action_pb2.ACTION_STATE_SUCCEEDED, action_pb2.ACTION_STATE_WAITING


@asynccontextmanager
async def served(
    database: Database, folder: Path, script: list[Step], app: App | None = None
) -> AsyncIterator[tuple[Client, OpenAIServer]]:
    async with OpenAIServer(script) as model:
        (folder / "key").write_text(KEY)
        (folder / "models.toml").write_text(
            f'[models.test]\nkind = "openai_compatible"\nmodel = "x"\nbase_url = "{model.base_url}"\n'
            'credential = "test"\n'
            'price = { input = "1.00", output = "2.00" }\n'
        )
        (folder / "credentials.toml").write_text(f'[credentials.test]\nfile = "{folder / "key"}"\n')
        config = config_of(
            database.dsn,
            folder,
            model_file=folder / "models.toml",
            credential_file=folder / "credentials.toml",
        )
        async with running(config, [app or Shop().app]) as client:
            yield client, model


def ask(client: Client, key: str = "k", text: str = "Help me.", **members: Any) -> Any:
    options = action_pb2.InvocationOptions(idempotency_key=key, on_wait=members.pop("on_wait", 0))
    wanted: dict[str, Any] = {"agent": "shop.helper", "parts": [ask_pb2.MessagePart(text=text)]}
    request = pb.AskRequest(options=options, **(wanted | members))
    return client.runtime.Ask(request, metadata=client.metadata, timeout=20)


async def test_an_answer_its_cost_and_its_turns(database: Database, tmp_path: Path) -> None:
    async with served(database, tmp_path, [LOOK, Say("Done.")]) as (client, model):
        answers = await asyncio.gather(ask(client), ask(client), ask(client))
        assert [1, 2] == [request.turn for request in model.requests]
        (answer, *_), ids = answers, {each.action.action_id for each in answers}
        assert (1, [False, True, True]) == (len(ids), sorted(each.attached for each in answers))
        assert [["Done."]] * 3 == [[part.text for part in each.parts] for each in answers]
        assert (SUCCEEDED, {"parts": [{"text": "Done."}]}) == (
            answer.action.state,
            json.loads(answer.action.output_json),
        )
        usage = answer.action.usage
        assert (2, 1, 200, 40, 280, True) == (
            usage.turns,
            usage.calls,
            usage.input_tokens,
            usage.output_tokens,
            usage.cost_micros,
            usage.cost_known,
        )
        assert 50 == answer.action.budget.turns
        asked = pb.ListTurnsRequest(action_id=answer.action.action_id, with_messages=True)
        turns = (await client.runtime.ListTurns(asked, metadata=client.metadata)).turns
        assert [(1, 1), (2, 0)] == [(turn.turn, len(turn.calls)) for turn in turns]
        assert [2, 2] == [len(json.loads(turn.messages_json)) for turn in turns]
        seen = pb.GetActionRequest(action_id=turns[0].calls[0].action_id)
        child = (await client.runtime.GetAction(seen, metadata=client.metadata)).action
        assert ("shop.find", "turn/1/call/1", SUCCEEDED) == (child.capability, child.step_path, child.state)
        # Execute with the same message and key is the same run.
        same = await client.execute("shop.helper", {"parts": [{"text": "Help me."}]}, "k")
        assert (answer.action.action_id, True, 2) == (
            same.action.action_id,
            same.attached,
            len(model.requests),
        )
        late = pb.CancelActionRequest(action_id=same.action.action_id)
        for told in (same, await client.runtime.CancelAction(late, metadata=client.metadata)):
            assert (usage, answer.action.budget) == (told.action.usage, told.action.budget)


async def test_a_run_is_heard_while_it_runs_and_joined_where_its_stream_broke(
    database: Database, tmp_path: Path
) -> None:
    async with served(database, tmp_path, [LOOK, Say("Done.", reasoning="Is it?")]) as (client, model):
        options = action_pb2.InvocationOptions(idempotency_key="k")
        asked = pb.AskRequest(
            agent="shop.helper", parts=[ask_pb2.MessagePart(text="Help me.")], options=options
        )
        call = client.runtime.AskStream(pb.AskStreamRequest(ask=asked), metadata=client.metadata, timeout=20)
        events = [response.event async for response in call]
        kinds = [event.WhichOneof("event") for event in events]
        turn = ["turn_requested", "delta", "turn_answered"]
        called = ["tool_started", "tool_finished"]
        begun = ["admitted", "attempt_started", "run_opened"]
        told = [kind for kind in kinds if kind not in ("effect_started", "parked", "requeued", "resumed")]
        assert [
            *begun,
            *turn,
            *called,
            "turn_requested",
            "delta",
            "delta",
            "turn_answered",
            "settled",
        ] == told
        assert ["I look.", "", "Done."] == [e.delta.text for e in events if e.HasField("delta")]
        assert ["Is it?"] == [e.delta.reasoning for e in events if e.delta.reasoning]
        (ended,) = [event.tool_finished for event in events if event.HasField("tool_finished")]
        assert (1, 1, "shop.find", "") == (ended.turn, ended.call, ended.tool, ended.outcome.message)
        assert (100, 20) == next(
            (e.turn_answered.usage.input_tokens, e.turn_answered.usage.output_tokens)
            for e in events
            if e.HasField("turn_answered")
        )
        for event in events:
            protovalidate.validate(event)
        broke = kinds.index("delta")
        rest = client.runtime.ResumeActionStream(
            pb.ResumeActionStreamRequest(action_id=events[0].action_id, after_cursor=events[broke].cursor),
            metadata=client.metadata,
            timeout=20,
        )
        assert [event.cursor for event in events[broke + 1 :]] == [r.event.cursor async for r in rest]
        # The whole of it is told again to who asks again, and the model is not.
        again = client.runtime.AskStream(pb.AskStreamRequest(ask=asked), metadata=client.metadata, timeout=20)
        assert [event.cursor for event in events] == [response.event.cursor async for response in again]
        assert [1, 2] == [request.turn for request in model.requests]
        resumed = pb.ResumeActionRequest(action_id=events[0].action_id)
        action = (await client.runtime.ResumeAction(resumed, metadata=client.metadata)).action
        assert (2, 1) == (action.usage.turns, action.usage.calls)
        asked.agent = "shop.find"
        wrong = pb.AskStreamRequest(ask=asked)
        call = client.runtime.AskStream(wrong, metadata=client.metadata, timeout=20)
        assert "MALFORMED_REQUEST" == (await refusal(call.read())).reason
        wrong.ask.parts[0].json = "{"
        call = client.runtime.AskStream(wrong, metadata=client.metadata, timeout=20)
        refused = await refusal(call.read())
        assert ("MALFORMED_JSON", "ask.parts[0].json") == (refused.reason, refused.infos[0].metadata["field"])
        feed = pb.WatchEventsRequest(filter=pb.EventFilter(types=["placet.action.delta"]))
        nothing = client.runtime.WatchEvents(feed, metadata=client.metadata, timeout=20)
        assert "MALFORMED_REQUEST" == (await refusal(nothing.read())).reason


async def test_another_message_under_the_key_is_a_conflict_and_no_agent_is_refused(
    database: Database, tmp_path: Path
) -> None:
    async with served(database, tmp_path, [Say("Done.")]) as (client, model):
        await ask(client)
        refused = await refusal(ask(client, text="Something else."))
        assert "IDEMPOTENCY_CONFLICT" == refused.reason
        refused = await refusal(ask(client, budget=agent_pb2.Budget(turns=1)))
        assert "IDEMPOTENCY_CONFLICT" == refused.reason
        narrow = agent_pb2.Budget(turns=1, active_time=Duration(seconds=9))
        bounded = (await ask(client, "narrow", budget=narrow)).action.budget
        assert (1, 9) == (bounded.turns, bounded.active_time.seconds)
        refused = await refusal(ask(client, agent="shop.find"))
        assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
        part = ask_pb2.MessagePart(json='1},{"text":"two"')
        refused = await refusal(ask(client, "other", parts=[part]))
        assert "MALFORMED_JSON" == refused.reason
        assert 2 == len(model.requests)


async def test_a_run_that_waits_for_people_is_returned_with_what_decides_it(
    database: Database, tmp_path: Path
) -> None:
    script: list[Step] = [Say("", call("shop-pay", order="A-1")), Say("Done.")]
    async with served(database, tmp_path, script) as (client, model):
        answer = await ask(client, on_wait=action_pb2.ON_WAIT_RETURN)
        assert (WAITING, 0, 1) == (answer.action.state, len(answer.parts), len(model.requests))
        (wait,) = answer.action.outcome.waits
        assert "turn/1/call/1" == wait.step_path
        refused = await refusal(ask(client))
        shown = await client.runtime.GetAction(
            pb.GetActionRequest(action_id=answer.action.action_id), metadata=client.metadata
        )
        # Nobody has paid anything yet, and everybody is told so.
        told = (answer.action.outcome, shown.action.outcome, *refused.outcomes)
        assert [outcome_pb2.EFFECT_STATE_NOT_DONE] * 3 == [each.effect for each in told]
        assert "APPROVAL_REQUIRED" == refused.reason


async def test_an_agent_that_is_said_when_it_is_asked_waits_for_others_with_all_that_was_said(
    database: Database, tmp_path: Path
) -> None:
    async with served(database, tmp_path, [Say("Done.")]) as (client, model):
        inline = agent_pb2.InlineAgent(
            model="test", tools=["shop.find"], instructions="Be brief.", max_tokens=9
        )
        answer = await ask(
            client, agent="placet.agent", inline_agent=inline, on_wait=action_pb2.ON_WAIT_RETURN
        )
        assert (WAITING, 0) == (answer.action.state, len(model.requests))
        seen = pb.GetActionRequest(action_id=answer.action.action_id, view=action_pb2.ACTION_VIEW_FULL)
        asked = json.loads((await client.runtime.GetAction(seen, metadata=client.metadata)).action.input_json)
        assert {
            "model": "test",
            "tools": ["shop.find"],
            "delegates": [],
            "instructions": "Be brief.",
            "max_tokens": 9,
        } == asked["agent"]
        for members in ({"agent": "placet.agent"}, {"inline_agent": inline}):
            assert "INPUT_SCHEMA_VIOLATION" == (await refusal(ask(client, "other", **members))).reason


async def test_an_agent_whose_model_nobody_knows_is_refused_before_anything_is_stored(
    database: Database, tmp_path: Path
) -> None:
    async with served(database, tmp_path, [Say("Done.")], Shop(model="other").app) as (client, model):
        refused = await refusal(ask(client))
        assert "AGENT_UNAVAILABLE" == refused.reason
        actions = (
            await client.runtime.ListActions(pb.ListActionsRequest(), metadata=client.metadata)
        ).actions
        assert (0, 0) == (len(actions), len(model.requests))


@pytest.mark.parametrize("path", ["model_file", "credential_file"])
async def test_a_file_that_cannot_be_meant_refuses_the_start(
    database: Database, tmp_path: Path, path: str
) -> None:
    from placet_server.config import ConfigRefused

    (tmp_path / "bad.toml").write_text("[models.test]\nkind = 'nothing'\n")
    with pytest.raises(ConfigRefused):
        async with running(config_of(database.dsn, tmp_path, **{path: tmp_path / "bad.toml"}), []):
            pass
