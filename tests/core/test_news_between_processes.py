"""What processes tell each other: only what somebody elsewhere waits for, within bounds, and read with suspicion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from placet_server.core.publication.doorbell import Doorbell
from placet_server.core.publication.hub import Hub
from placet_server.core.publication.notice import Notice, packed, unpacked
from placet_server.core.publication.relay import WANTED_MAX, WORDS_MAX, Relay
from placet_server.model.line import Line
from placet_server.store.notify import PAYLOAD_BYTES_MAX

LINE = Line("default", "shop.order", "1", "acme")


def test_many_words_go_out_in_payloads_that_fit_and_come_back_whole() -> None:
    notice = Notice(
        joined=True,
        lines=tuple(Line("q" * 64, f"shop.ünïcode_{n}", "1", "t" * 64) for n in range(300)),
        news=tuple(f"0199-{n:031}" for n in range(1000)),
        wanted=tuple(f"019a-{n:031}" for n in range(500)),
        cancelled=("019b",),
    )
    texts = packed(notice, PAYLOAD_BYTES_MAX)
    assert all(len(text.encode()) <= PAYLOAD_BYTES_MAX for text in texts)
    assert len(texts) < 20
    read = [unpacked(text) for text in texts]
    assert notice == Notice(
        joined=any(each.joined for each in read),
        lines=tuple(line for each in read for line in each.lines),
        news=tuple(word for each in read for word in each.news),
        wanted=tuple(word for each in read for word in each.wanted),
        cancelled=tuple(word for each in read for word in each.cancelled),
    )
    assert [] == packed(Notice(), PAYLOAD_BYTES_MAX)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"lines": 1, "news": {}, "wanted": null, "joined": 1}',
        '{"lines": [["a"], "b", [1,2,3,4]], "news": [1, null], "later": [1]}',
    ],
)
def test_what_is_not_understood_is_passed_over(text: str) -> None:
    assert Notice() == unpacked(text)


async def test_whoever_is_alone_tells_nothing() -> None:
    relay = Relay()
    hub, doorbell = Hub(relay), Doorbell(relay)
    hub.subscribe("a")
    hub.publish("a")
    doorbell.ring(LINE)
    relay.cancelled("a")
    assert Notice() == relay.take()


@pytest.mark.parametrize("meets", [Relay.meet, lambda relay: relay.look_round(has_others=True)])
async def test_whoever_came_unseen_is_told_what_got_work_meanwhile(meets: Callable[[Relay], None]) -> None:
    relay = Relay()
    for line in (LINE, LINE, Line("default", "shop.refund", "1", "acme")):
        relay.line(line)
    relay.look_round(has_others=False)
    meets(relay)
    assert {"shop.order", "shop.refund"} == {line.capability for line in relay.take().lines}
    meets(relay)
    assert Notice() == relay.take()


async def test_news_are_told_of_what_is_waited_for_elsewhere_alone_and_once() -> None:
    relay = Relay()
    relay.has_others = True
    hub = Hub(relay)
    relay.note_wanted(("a",))
    for action_id in ("a", "b", "a"):
        hub.publish(action_id)
    assert Notice(news=("a",)) == relay.take()
    hub.wake("a")
    assert Notice() == relay.take()


async def test_a_wish_is_told_once_until_somebody_new_must_hear_it_and_not_for_what_runs_here() -> None:
    relay = Relay()
    relay.has_others = True
    relay.is_here = lambda action_id: action_id == "here"
    hub = Hub(relay)
    for action_id in ("a", "a", "here"):
        hub.subscribe(action_id)
    assert Notice(wanted=("a",)) == relay.take()
    hub.subscribe("a")
    assert Notice() == relay.take()
    relay.forget_wishes()
    hub.subscribe("a")
    assert Notice(wanted=("a",)) == relay.take()


async def test_what_is_kept_is_bounded_and_forgotten_when_everybody_is_gone() -> None:
    relay = Relay()
    relay.has_others = True
    relay.note_wanted(tuple(map(str, range(WANTED_MAX + 10))))
    for number in range(WORDS_MAX + 10):
        relay.news(str(number))
    assert (WANTED_MAX, WORDS_MAX) == (len(relay.wanted_elsewhere), len(relay.take().news))
    relay.look_round(has_others=False)
    assert {} == relay.wanted_elsewhere


async def test_a_line_rung_here_is_told_and_one_heard_from_elsewhere_is_not_told_again() -> None:
    relay = Relay()
    relay.has_others = True
    doorbell = Doorbell(relay)
    doorbell.wake(LINE)
    assert frozenset({LINE}) == await doorbell.wait(1)
    assert Notice() == relay.take()
    doorbell.ring(LINE)
    doorbell.ring()
    assert Notice(lines=(LINE,)) == relay.take()


async def test_what_could_not_be_told_stays_to_be_told_within_bounds() -> None:
    relay = Relay()
    relay.has_others = True
    relay.line(LINE)
    for number in range(WORDS_MAX):
        relay.news(str(number))
    untold = relay.take()
    relay.news("new")
    relay.put_back(untold)
    told = relay.take()
    assert ((LINE,), WORDS_MAX, True) == (told.lines, len(told.news), "new" in told.news)


async def test_whoever_has_something_to_tell_wakes_the_teller() -> None:
    relay = Relay()
    relay.has_others = True
    waiting = asyncio.create_task(relay.wait(30))
    await asyncio.sleep(0)
    relay.line(LINE)
    await asyncio.wait_for(waiting, 5)
