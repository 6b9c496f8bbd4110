"""`placet ask` tells what the agent has answered, or what waits for people, and nothing else."""

from __future__ import annotations

from tests.cli.support import CommandLine


def test_the_sample_agent_answers_looks_up_and_refunds_without_a_key_of_anybody(cli: CommandLine) -> None:
    asked = cli("ask", "shop.helper", "Where is order A-1001?", "--key", "where")
    assert 0 == asked.code, asked.err
    assert "A-1001" in asked.out
    assert "SUCCEEDED" in asked.err
    assert "2 turns, 1 call" in asked.err
    refunded = cli(
        "ask",
        "shop.helper",
        "Refund A-1003, please",
        "--budget",
        "turns=9",
        "--budget",
        "seconds=60",
        "--json",
    ).document
    assert (9, 60.0) == tuple(refunded["action"]["budget"][name] for name in ("turns", "active_time"))
    assert ("SUCCEEDED", False) == (refunded["action"]["state"], refunded["attached"])
    assert "Refunded" in refunded["text"]
    again = cli("ask", "shop.helper", "Where is order A-1001?", "--key", "where", "--json").document
    assert again["attached"]
    shown = cli("show", again["action"]["action_id"])
    assert "turn/1/call/1" in shown.out
    assert "2 turns, 1 call" in shown.out
    assert "orders-lookup" in shown.out


def test_a_mistake_is_told_as_one(cli: CommandLine) -> None:
    assert 2 == cli("ask", "shop.helper", "x", "--argument", "novalue").code
    assert 2 == cli("ask", "shop.helper", "x", "--budget", "turns=none").code
    refused = cli("ask", "orders.lookup", "x")
    assert "is no agent" in refused.err
    assert 3 == refused.code
    assert 9 == cli("ask", "no.such", "x").code
