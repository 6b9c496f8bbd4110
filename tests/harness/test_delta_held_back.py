"""What a model says reaches whoever listens: the first piece at once, all of it in order, none held by a silence, none
faster than it is taken.
"""

from __future__ import annotations

import asyncio

import pytest

from placet_server.harness.provider.answer import Delta
from placet_server.harness.provider.delta import PIECE_BYTES_MAX, pieces


class Listener:
    def __init__(self) -> None:
        self.heard: list[Delta] = []
        self.more = asyncio.Event()

    async def hear(self, delta: Delta) -> None:
        self.heard.append(delta)
        self.more.set()


async def test_the_first_piece_is_told_at_once_and_the_rest_together() -> None:
    listener = Listener()
    async with pieces(listener.hear) as deltas:
        await deltas.add(Delta("text", "a"))
        assert [Delta("text", "a")] == listener.heard
        for word in ("b", "c", "", "d"):
            await deltas.add(Delta("text", word))
    assert [Delta("text", "a"), Delta("text", "bcd")] == listener.heard


async def test_a_silence_holds_nothing_back() -> None:
    listener = Listener()
    async with pieces(listener.hear) as deltas:
        await deltas.add(Delta("text", "a"))
        listener.more.clear()
        await deltas.add(Delta("text", "b"))
        await listener.more.wait()
        assert "b" == listener.heard[-1].text


async def test_text_and_reasoning_are_never_mixed_and_keep_their_order() -> None:
    listener = Listener()
    async with pieces(listener.hear) as deltas:
        for kind, text in (
            ("reasoning", "1"),
            ("reasoning", "2"),
            ("text", "3"),
            ("text", "4"),
            ("reasoning", "5"),
        ):
            await deltas.add(Delta(kind, text))  # type: ignore[arg-type]
    assert ["1", "2", "34", "5"] == [delta.text for delta in listener.heard]


async def test_a_piece_does_not_grow_beyond_its_bound() -> None:
    listener = Listener()
    async with pieces(listener.hear) as deltas:
        for _ in range(9):
            await deltas.add(Delta("text", "x" * (PIECE_BYTES_MAX // 2)))
    assert all(len(delta.text) <= PIECE_BYTES_MAX for delta in listener.heard)
    assert 9 * PIECE_BYTES_MAX // 2 == sum(len(delta.text) for delta in listener.heard)


async def test_who_does_not_take_what_is_said_holds_the_model_back() -> None:
    gate = asyncio.Event()
    taken: list[str] = []

    async def slow(delta: Delta) -> None:
        await gate.wait()
        taken.append(delta.text)

    async def speak() -> None:
        async with pieces(slow) as deltas:
            for number in range(3):
                await deltas.add(Delta("text", f"{number}" * PIECE_BYTES_MAX))

    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(speak())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not speaking.done()
        gate.set()
    assert ["0", "1", "2"] == [text[0] for text in taken]


async def test_what_the_listener_raises_ends_the_saying_also_out_of_the_timer() -> None:
    class Gone(Exception):
        pass

    count = 0

    async def hear(_: Delta) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise Gone

    async def listened() -> None:
        async with pieces(hear) as deltas:
            await deltas.add(Delta("text", "a"))
            await deltas.add(Delta("text", "b"))
            await asyncio.Event().wait()

    with pytest.raises(Gone):
        await listened()


async def test_what_goes_wrong_with_the_model_is_told_as_it_is() -> None:
    async def listened() -> None:
        async with pieces(Listener().hear) as deltas:
            await deltas.add(Delta("text", "a"))
            raise LookupError("model")

    with pytest.raises(LookupError, match="model"):
        await listened()


async def test_half_a_character_is_told_as_unknown() -> None:
    listener = Listener()
    async with pieces(listener.hear) as deltas:
        await deltas.add(Delta("text", "a\ud83d"))
    assert ["a?"] == [delta.text for delta in listener.heard]
