"""A timeout that no deadline can be made of is told at once, and nothing is sent."""

import math

import pytest

from placet.retry import TIMEOUT_SECONDS_MAX, Deadline


@pytest.mark.parametrize(
    "seconds", [0, -1, math.nan, math.inf, 1e30, math.nextafter(TIMEOUT_SECONDS_MAX, math.inf)]
)
def test_a_timeout_that_cannot_be_is_a_mistake(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be positive, and ten years at most"):
        Deadline(seconds)


@pytest.mark.parametrize("seconds", [1e-9, TIMEOUT_SECONDS_MAX])
def test_every_other_one_is_time(seconds: float) -> None:
    assert 0 < Deadline(seconds, lambda: 0.0).seconds_left() <= seconds
