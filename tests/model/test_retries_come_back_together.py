"""Pauses between attempts: growing, bounded, and each action's own."""

import pytest

from placet_server.model.contract import BACKOFF_JITTER, Backoff

IDS = [f"0199b0c0-0000-7000-8000-{n:012x}" for n in range(1000)]


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (10**9, 30.0)])
def test_a_pause_doubles_to_its_bound(attempt: int, seconds: float) -> None:
    spans = [Backoff().delay_seconds(attempt, each) for each in IDS]
    assert seconds * (1 - BACKOFF_JITTER) <= min(spans)
    assert seconds * (1 + BACKOFF_JITTER) >= max(spans)
    assert pytest.approx(seconds, rel=0.02) == sum(spans) / len(spans)


def test_actions_that_failed_together_are_spread_over_the_whole_jitter() -> None:
    tenths = {int(Backoff().delay_seconds(1, each) * 20) for each in IDS}
    assert set(range(16, 24)) == tenths


def test_an_action_has_the_same_pause_wherever_it_is_reckoned() -> None:
    rule = Backoff(initial_delay_seconds=0.5, delay_seconds_max=600.0, multiplier=10.0)
    assert rule.delay_seconds(3, IDS[7]) == rule.delay_seconds(3, IDS[7])


def test_the_steepest_rule_stays_a_number() -> None:
    steep = Backoff(initial_delay_seconds=86400.0, delay_seconds_max=604800.0, multiplier=10.0)
    assert 604800.0 * 1.2 >= steep.delay_seconds(100, IDS[0]) > 0
