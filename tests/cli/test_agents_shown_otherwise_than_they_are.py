"""Whoever looks at an agent sees all that it may do, before anybody asks it anything."""

from __future__ import annotations

from tests.cli.support import CommandLine


def test_an_agent_is_admitted_shown_and_not_yet_run(cli: CommandLine) -> None:
    checked = cli("app", "check", "--app", "tests.cli.agents:app", "--json")
    # Whether the shop is there, only a server knows.
    assert {"tool_unknown", "tool_pattern_empty"} == {each["code"] for each in checked.document["problems"]}
    assert (0, True) == (checked.code, checked.document["ok"])
    admitted = cli("app", "admit", "--app", "tests.cli.agents:app", "--json").document
    # No model of this server has their names, so nobody can ask them yet.
    assert [("model_unknown", True)] * 2 == [(each["code"], each["warning"]) for each in admitted["problems"]]
    assert admitted["changed"]

    listed = cli("capabilities", "--agents").out
    row = next(line for line in listed.splitlines() if line.startswith("helpers.desk "))
    for word in ("openai:gpt-5", "orders.*, payments.refund", "helpers.writer", "10 turns", "NOT RUN HERE"):
        assert word in row
    assert not any(line.startswith("payments.") for line in listed.splitlines())
    found = cli("capabilities", "--agents", "--prefix", "helpers.", "--json").document["capabilities"]
    assert ["helpers.desk", "helpers.writer"] == [each["name"] for each in found]
    lacked = [("model_unknown", "openai:gpt-5"), ("delegate_unavailable", "helpers.writer")]
    assert lacked == [(lack["problem"], lack["name"]) for lack in found[0]["lacks"]]
    assert row.endswith("NOT RUN HERE  model_unknown openai:gpt-5, delegate_unavailable helpers.writer")
    inline = next(line for line in listed.splitlines() if line.startswith("placet.agent "))
    assert "said when asked" in inline
    assert "" == found[0]["agent"]["instructions"]

    shown = cli("capabilities", "helpers.desk").out
    lines = {tuple(line.split(None, 1)) for line in shown.splitlines()}
    for told in (
        ("kind", "AGENT"),
        ("model", "openai:gpt-5"),
        ("tool", "orders.*"),
        ("tool", "payments.refund (version 1; without scopes)"),
        ("delegate", "helpers.writer (scopes orders.read; 3 turns)"),
        ("budget", "10 turns, 50000 tokens, 90 s"),
        ("temperature", "0"),
        ("effect", "COMPOSED"),
        ("lacks", "model_unknown openai:gpt-5"),
        ("lacks", "delegate_unavailable helpers.writer"),
        ("Help", "{{name}}."),
    ):
        assert told in lines, told
    assert "\x1b" not in shown
    document = cli("capabilities", "helpers.desk", "--json").document
    assert "Help {{name}}.\nBe short.\x1b[31m" == document["agent"]["instructions"]
    assert ["parts"] == document["input_schema"]["required"]
    assert ["refund", "reason"] == document["output_schema"]["required"]
    called = cli("call", "helpers.desk", '{"parts":[{"text":"hello"}]}')
    assert "AGENT_UNAVAILABLE" in called.err
    assert 0 != called.code
    # Why, an operator sees here.
    assert "placet status" in called.err
    found = cli("status", "--json").document["server"]["agents"]
    assert (True, [{"name": "local:placet-local", "problem": ""}]) == (found["installed"], found["models"])
    facts = [line.split(None, 1) for line in cli("status").out.splitlines()]
    assert ["models", "local:placet-local"] in facts
    assert any(
        fact[0] == "agents" and "can run here, at most 50 turns" in fact[1] for fact in facts if len(fact) > 1
    )
