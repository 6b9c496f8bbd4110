"""What a provider may send without end, or what grows on the way to where it is kept, is bounded and told as that."""

from __future__ import annotations

import json

import pytest

from placet.testing.model_servers import Say, call
from placet_server.harness.plan import plan
from placet_server.harness.provider.answer import Answer, TurnFailure
from placet_server.model.entry import TurnProblem
from placet_server.model.usage import Counters
from tests.harness.conversation import ALL_WIRES, OPENED, asked, models_of


async def test_an_answer_of_more_calls_than_anybody_means_is_hung_up_on() -> None:
    from placet_server.harness.provider import wire

    said = Say("", *(call("orders-lookup", order=str(n)) for n in range(300)))
    async with ALL_WIRES["openai"]([said]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [wire.request_text(["look"])])
        await models.close()
    assert (TurnProblem.INVALID, True) == (failure.value.category, failure.value.charged)


def test_words_in_more_parts_than_an_answer_may_have_are_joined() -> None:
    answer = Answer(text="{}", said=tuple(map(str, range(300))), finish="stop")
    decided = plan(answer, OPENED, turn=1, counters=Counters(), equal={})
    assert decided.output is not None
    parts = [part["text"] for part in json.loads(decided.output)["parts"]]
    assert 255 == len(parts)
    assert "".join(map(str, range(300))) == "".join(parts)
