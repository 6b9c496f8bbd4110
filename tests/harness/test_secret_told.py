"""What opens the door to a model is told to nobody: not in failures, entries, logs or tracebacks."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from placet.testing.model_servers import Fail, Say
from placet_server.harness.provider import catalogue
from placet_server.harness.provider.adapter import Models
from placet_server.harness.provider.answer import AgentsUnavailable, TurnFailure
from placet_server.harness.provider.catalogue import Catalogue
from placet_server.harness.provider.credential import (
    HIDDEN,
    CredentialMissing,
    Credentials,
    Secret,
    parse,
    scrubbed,
)
from tests.harness.conversation import KINDS, WIRES, asked

SECRET = 'sk-"quoted"/+==%\\&-0123456789'
HEADER = "header-secret-9876543210"


def setup(server: Any, folder: Path, *, key: str = SECRET) -> Models:
    (folder / "key").write_text(key + "\n")
    (folder / "header").write_text(HEADER)
    document = {
        "models": {
            "test": {
                "kind": KINDS[server.wire].value,
                "model": "model-x",
                "base_url": server.base_url,
                "credential": "test",
                "headers": {"x-gateway": {"file": str(folder / "header")}},
            }
        }
    }
    models = catalogue.parse(document)
    credentials = parse({"credentials": {"test": {"file": str(folder / "key")}}})
    return Models(lambda: models, lambda: credentials)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_provider_that_tells_the_key_back_tells_it_to_nobody(
    wire: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from placet_server.harness.provider import wire as messages

    caplog.set_level(logging.DEBUG)
    body = {"error": {"type": "authentication_error", "code": None, "message": f"key {SECRET} via {HEADER}"}}
    async with WIRES[wire]([Fail(401, body=body), Say("ok")], key=SECRET) as server:
        models = setup(server, tmp_path)
        provider = models.provider("test", "acme")
        with pytest.raises(TurnFailure) as failure:
            await asked(provider, [messages.request_text(["hi"])])
        answer = await asked(provider, [messages.request_text(["hi"])])
        await models.close()
        assert HEADER == server.requests[0].headers["x-gateway"]
    told = [
        "".join(traceback.format_exception(failure.value)),
        failure.value.detail,
        repr(provider),
        repr(vars(provider)),
        repr(vars(models)),
        repr(answer),
        caplog.text,
    ]
    assert HIDDEN in failure.value.detail
    for text in told:
        assert "0123456789" not in text
        assert HEADER not in text


@pytest.mark.parametrize("wire", WIRES)
async def test_a_wrong_key_is_not_in_the_refusal(wire: str, tmp_path: Path) -> None:
    from placet_server.harness.provider import wire as messages

    async with WIRES[wire]([Say("ok")]) as server:
        models = setup(server, tmp_path)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [messages.request_text(["hi"])])
        await models.close()
    assert failure.value.__cause__ is None
    assert "0123456789" not in "".join(traceback.format_exception(failure.value))


async def test_a_key_that_was_changed_is_used_at_once(tmp_path: Path) -> None:
    from placet_server.harness.provider import wire as messages

    async with WIRES["openai"]([Say("ok")], key="second-key") as server:
        models = setup(server, tmp_path, key="first-key")
        with pytest.raises(TurnFailure):
            await asked(models.provider("test", "acme"), [messages.request_text(["hi"])])
        (tmp_path / "key").write_text("second-key")
        assert ("ok",) == (await asked(models.provider("test", "acme"), [messages.request_text(["hi"])])).said
        await models.close()


def test_a_secret_shows_itself_to_nobody_who_does_not_ask_for_it() -> None:
    secret = Secret(SECRET)
    assert HIDDEN == repr(secret) == str(secret) == f"{secret}"
    assert secret == Secret(SECRET)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_every_form_in_which_a_secret_may_come_back_is_hidden() -> None:
    import json
    from urllib.parse import quote, quote_plus

    forms = [SECRET, json.dumps(SECRET), repr(SECRET), quote(SECRET, safe=""), quote_plus(SECRET)]
    for form in forms:
        assert "0123456789" not in scrubbed(f"before {form} after", [Secret(SECRET)])


def test_a_handle_of_another_tenant_is_like_one_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIRS", "value-of-theirs")
    held = parse({"credentials": {"theirs": {"env": "THEIRS", "tenants": ["others"]}}})
    words = []
    for handle in ("theirs", "nobody"):
        with pytest.raises(CredentialMissing) as missing:
            held.secret(handle, "acme")
        words.append(str(missing.value).replace(handle, ""))
    assert words[0] == words[1]
    assert "value-of-theirs" == held.secret("theirs", "others").reveal()


def test_a_secret_written_where_only_its_place_belongs_is_not_told() -> None:
    for document in (
        {"credentials": {"openai": SECRET}},
        {"credentials": {"openai": {"value": SECRET}}},
        {"credentials": {"openai": {"env": SECRET * 20}}},
    ):
        with pytest.raises(ValueError, match="openai") as refused:
            parse(document)
        assert "0123456789" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"a\nb", b"x" * 20_000])
def test_what_cannot_be_a_secret_is_missing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    held = parse({"credentials": {"test": {"file": str(tmp_path / "key")}}})
    with pytest.raises(CredentialMissing):
        held.secret("test", "acme")


def test_a_model_without_its_credential_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    known = Catalogue([*catalogue.of_names(["openai:gpt-x"])._entries.values()])
    models = Models(lambda: known, lambda: Credentials({}))
    for handle in ("", "nobody"):
        with pytest.raises(AgentsUnavailable) as missing:
            models.provider("openai:gpt-x", "acme", handle)
        assert "credential_missing" == missing.value.problem
