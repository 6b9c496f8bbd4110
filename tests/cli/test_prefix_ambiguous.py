"""A beginning of an action id must name one action, or none."""

from __future__ import annotations

from tests.cli.support import CommandLine


def _action(cli: CommandLine, key: str) -> str:
    ended = cli("call", "orders.lookup", '{"order": "A-1001"}', "--key", key, "--json")
    action_id: str = ended.document["action"]["action_id"]
    return action_id


def test_a_unique_beginning_finds_its_action_with_and_without_hyphens(cli: CommandLine) -> None:
    action_id = _action(cli, "unique")
    for text in (action_id, action_id[:-1], action_id.replace("-", "")[:31], action_id.upper()):
        ended = cli("show", text, "--json")
        assert (0, action_id) == (ended.code, ended.document["action_id"])


def test_a_beginning_of_several_is_refused_and_they_are_listed(cli: CommandLine) -> None:
    ids = {_action(cli, "first"), _action(cli, "second")}
    shared = next(iter(ids))[:4]
    ended = cli("show", shared)
    assert 2 == ended.code
    assert "several begin with" in ended.err
    assert any(action_id in ended.err for action_id in ids)


def test_a_beginning_of_none_is_not_found(cli: CommandLine) -> None:
    assert 9 == cli("cancel", "ffff-ffff"[:9]).code


def test_less_than_four_digits_are_refused(cli: CommandLine) -> None:
    ended = cli("watch", "01a")
    assert (2, True) == (ended.code, "at least 4" in ended.err)
