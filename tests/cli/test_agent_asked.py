"""`placet ask` tells what the agent has answered, or what waits for people, and nothing else."""

from __future__ import annotations

from tests.cli.support import CommandLine


def test_the_sample_agent_answers_looks_up_and_refunds_without_a_key_of_anybody(cli: CommandLine) -> None:
    asked = cli("ask", "shop.helper", "Where is order A-1001?", "--key", "where")
    assert 0 == asked.code, asked.err
    assert "A-1001" in asked.out
    assert "SUCCEEDED" in asked.err
    assert "2 turns, 1 call" in asked.err
    # What it calls is told beside its answer.
    assert 1 == sum("orders.lookup" in line and "SUCCEEDED" in line for line in asked.err.splitlines())
    assert 1 == len(asked.out.splitlines())
    refunded = cli(
        "ask",
        "shop.helper",
        "Refund A-1003, please",
        "--budget",
        "turns=9",
        "--budget",
        "seconds=60",
        "--no-stream",
        "--json",
    ).document
    assert (9, 60.0) == tuple(refunded["action"]["budget"][name] for name in ("turns", "active_time"))
    assert ("SUCCEEDED", False) == (refunded["action"]["state"], refunded["attached"])
    assert "Refunded" in refunded["text"]
    question = ("ask", "shop.helper", "Where is order A-1001?", "--key", "where")
    again = cli(*question, "--no-stream", "--json").document
    assert again["attached"]
    *events, told = cli(*question, "--json").lines
    assert again["action"]["action_id"] == told["action"]["action_id"]
    assert asked.out == told["text"] + "\n"
    said = [event["delta"]["text"] for event in events if event.get("delta", {}).get("turn") == 2]
    assert (told["text"], "placet.action.settled") == ("".join(said), events[-1]["type"])
    shown = cli("show", again["action"]["action_id"])
    assert "turn/1/call/1" in shown.out
    assert "2 turns, 1 call" in shown.out
    assert "orders-lookup" in shown.out
    tree = [line[10:] for line in cli("show", again["action"]["action_id"], "--tree").out.splitlines()]
    assert ("shop.helper", "SUCCEEDED") == (tree[0].split()[0], tree[0].split()[2])
    begins = ["  turn 1  ", "    orders.lookup  ", "  turn 2  "]
    assert begins == [line[: len(begin)] for begin, line in zip(begins, tree[1:], strict=True)]
    grown = cli("show", again["action"]["action_id"], "--tree", "--json").document
    assert (2, ["orders.lookup"], True) == (
        len(grown["turns"]),
        [child["capability"] for child in grown["children"]],
        grown["is_whole"],
    )


def test_a_mistake_is_told_as_one(cli: CommandLine) -> None:
    assert 2 == cli("ask", "shop.helper", "x", "--argument", "novalue").code
    assert 2 == cli("ask", "shop.helper", "x", "--budget", "turns=none").code
    refused = cli("ask", "orders.lookup", "x")
    assert "is no agent" in refused.err
    assert 3 == refused.code
    assert 9 == cli("ask", "no.such", "x").code
