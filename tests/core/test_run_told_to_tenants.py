"""What callers are told of a run that fails says nothing of the operator's machines and files."""

from pathlib import Path

import pytest

from placet.testing.model_servers import KEY, Fail, OpenAIServer, Say
from placet_server.harness.provider.catalogue import Kind
from placet_server.harness.provider.credential import Source
from placet_server.model.run_errors import AgentUnavailable
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_served, open_shop
from tests.postgres import Database


@pytest.mark.parametrize("source", [{"file": Path("/run/secrets/gateway-7")}, {"env": "ACME_GATEWAY_KEY"}])
async def test_where_a_secret_is_missing_is_not_told(
    database: Database, source: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    address = "http://127.0.0.1:9/v1"
    made = Source(**source)  # type: ignore[arg-type]
    async with open_served(database.dsn, Shop(), Kind.OPENAI_COMPATIBLE, address, key=made) as kernel:
        with pytest.raises(AgentUnavailable) as refused:
            await asked(kernel)
        place = str(next(iter(source.values())))
        assert "credential_missing" in str(refused.value)
        assert (False, True) == (place in str(refused.value), place in caplog.text)


async def test_what_a_gateway_says_is_told_to_the_log_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    body = {"error": {"message": f"no route to http://10.0.0.1:8000, account acct-77, key {KEY}"}}
    async with (
        OpenAIServer([Fail(400, body=body), Say("Done.")]) as server,
        open_shop(database.dsn, Shop(), server) as kernel,
    ):
        ended = await asked(kernel)
    assert ("model_refused", True) == (ended.failure_code, "(400)" in ended.message)
    assert not [each for each in ("10.0.0.1", "acct-77", "model-x", KEY) if each in ended.message]
    assert "acct-77" in caplog.text
    assert f"test at {server.base_url} gave no answer" in caplog.text
    assert KEY not in caplog.text
