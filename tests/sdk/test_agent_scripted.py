"""`placet.testing` for agents: their models say what a script says, and what they call waits for real people."""

import asyncio

import placet
import placet.testing
from placet import TurnAnswered
from placet.testing import Fail, Say, call
from placet.testing.model_servers import AnthropicServer
from placet.testing.scripted import Models


def _desk() -> placet.App:
    app = placet.App("desk")

    @app.tool("desk.look", "read")
    async def look(order: str) -> str:
        return f"{order} is paid"

    @app.tool("desk.refund", "idempotent", hazards=["financial"], approval="1 of role:finance")
    async def refund(order: str) -> str:
        return f"refunded {order}"

    @app.tool("desk.note", "idempotent", input_bytes_max=64)
    async def note(text: str) -> None: ...

    app.agent("desk.helper", model="fast", tools=["desk.*"])
    app.agent("desk.writer", model="words")
    return app


async def test_a_run_says_what_its_script_says_and_its_calls_wait_for_people() -> None:
    models: Models = {
        "fast": [
            Say("I look.", call("desk.look", order="A-1"), call("desk.look", item="A-1"), call("desk.shout")),
            Fail(429),
            Say("I refund it.", call("desk.refund", order="A-1")),
            Say("It is refunded."),
        ],
        "words": AnthropicServer([Say("Dear Ann,")]),
    }
    async with placet.testing.server(_desk(), models=models, people=["ben:finance"]) as server:
        client = server.client()
        reply = await client.ask("desk.helper", "Refund A-1.", key="refund", on_wait="return")
        [wait] = reply.action.outcome.waits
        assert "turn/2/call/1" == wait.step_path
        asked = asyncio.create_task(client.ask("desk.helper", "Refund A-1.", key="refund", on_wait="hold"))
        ben = server.person("ben")
        shown = await ben.approval(wait.approval_id)
        await ben.decide(shown.approval_id, "approve", digest=shown.digest)
        assert "It is refunded." == (await asked).text

        assert [1, 2, 2, 3] == [request.turn for request in server.models["fast"].requests]
        calls = await server.calls(reply.action_id)
        assert [
            (1, "desk.look", True, ""),
            (1, "desk.look", False, "ARGUMENTS_INVALID"),
            (1, "desk-shout", False, "TOOL_UNKNOWN"),
        ] == [(each.turn, each.tool, each.action is not None, each.problem) for each in calls[:3]]
        refunded = calls[3].action
        assert refunded is not None
        assert ("desk.refund", '"refunded A-1"') == (refunded.capability, refunded.output_json)

        assert "Dear Ann," == (await client.ask("desk.writer", "A letter to Ann.")).text
        assert 1 == len(server.models["words"].requests)


async def test_what_a_gate_refused_is_no_action_and_says_which_rule_it_was() -> None:
    script = [Say("", call("desk.note", text="x" * 99), call("desk.note", text="paid")), Say("Noted.")]
    async with placet.testing.server(_desk(), models={"fast": script, "words": []}) as server:
        client = server.client()
        run = (await client.ask("desk.helper", "Note it.")).action_id
        called = await server.calls(run)
        assert [("REFUSED", "PAYLOAD_TOO_LARGE", False), ("", "", True)] == [
            (each.problem, each.reason, each.action is not None) for each in called
        ]
        async with client.run_stream(run) as heard:
            [answered, _] = [
                event.event.turn_answered async for event in heard if isinstance(event, TurnAnswered)
            ]
        # As the answer was stored nobody had asked the gates yet.
        assert [True, True] == [bool(each.action_id) for each in answered.calls]
