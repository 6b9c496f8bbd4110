"""Tools that cannot work are refused where they are declared, with what to change."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import placet
from placet import Context, DeclarationError, SyncContext


class Opaque:
    pass


def _refusal(declare: Callable[[placet.App], object]) -> str:
    with pytest.raises(DeclarationError) as caught:
        declare(placet.App("shop"))
    return str(caught.value)


def test_an_effect_that_does_not_exist_lists_those_that_do() -> None:
    text = _refusal(lambda app: app.tool("orders.refund", "write")(lambda: None))  # type: ignore[arg-type]
    assert text == (
        "tool 'orders.refund': effect is 'write'; say one of 'read' (changes nothing), "
        "'composed' (does nothing but by the tools that it calls), "
        "'idempotent' (the provider deduplicates on our effect key), "
        "'reconcilable' (the effect can be looked up at the provider), 'unsafe' (none of these)"
    )


def test_what_only_calls_others_is_async_and_is_looked_up_by_nobody() -> None:
    assert "its function is async" in _refusal(
        lambda app: app.tool("orders.settle", "composed")(lambda: None)
    )

    def declare(app: placet.App) -> None:
        async def settle() -> None: ...

        app.tool("orders.settle", "composed")(settle)
        app.lookup("orders.settle")(lambda: placet.NotKnown())

    assert "does nothing itself" in _refusal(declare)


def test_a_name_and_version_cannot_be_declared_twice_but_versions_live_side_by_side() -> None:
    def declare(app: placet.App) -> None:
        for version in ("1", "2", "1"):
            app.tool("orders.lookup", "read", version=version)(lambda: None)

    assert "'orders.lookup' version '1' is declared twice" in _refusal(declare)


def test_a_lookup_belongs_to_one_tool_that_has_an_effect() -> None:
    async def find(context: placet.LookupContext) -> placet.NotKnown:
        return placet.NotKnown()

    async def wrong(context: Context) -> None:
        pass

    def declare(effect: Any, *finds: Callable[..., Any]) -> Callable[[placet.App], None]:
        def declaring(app: placet.App) -> None:
            if effect:
                app.tool("orders.pay", effect)(lambda: None)
            for each in finds:
                app.lookup("orders.pay")(each)

        return declaring

    assert "tool 'orders.pay' version '1' is not declared; its lookup comes after" in _refusal(
        declare("", find)
    )
    assert "has two lookups" in _refusal(declare("reconcilable", find, find))
    assert "no effect to look up" in _refusal(declare("read", find))
    assert "is a lookup; annotate 'context' as placet.LookupContext" in _refusal(declare("unsafe", wrong))


def test_parameters_need_types() -> None:
    def handler(order) -> None:  # type: ignore[no-untyped-def]
        pass

    assert "annotate 'order', for example `order: str`" in _refusal(
        lambda app: app.tool("a", "read")(handler)
    )


def test_star_parameters_have_no_schema() -> None:
    def args(*orders: str) -> None:
        pass

    def kwargs(**orders: str) -> None:
        pass

    def positional(order: str, /) -> None:
        pass

    assert "takes *orders: " in _refusal(lambda app: app.tool("a", "read")(args))
    assert "takes **orders: " in _refusal(lambda app: app.tool("a", "read")(kwargs))
    assert "remove the `/`" in _refusal(lambda app: app.tool("a", "read")(positional))


def test_the_context_must_fit_the_function() -> None:
    async def is_async(context: SyncContext) -> None:
        pass

    def plain(context: Context) -> None:
        pass

    async def twice(context: Context, again: Context) -> None:
        pass

    assert "annotate 'context' as placet.Context" in _refusal(lambda app: app.tool("a", "read")(is_async))
    assert "annotate 'context' as placet.SyncContext" in _refusal(lambda app: app.tool("a", "read")(plain))
    assert "two contexts" in _refusal(lambda app: app.tool("a", "read")(twice))


@pytest.mark.parametrize("option", ["streaming", "effect_marked"])
def test_what_only_a_context_can_do_needs_one(option: Any) -> None:
    async def handler() -> None:
        pass

    text = _refusal(lambda app: app.tool("a", "unsafe", **{option: True})(handler))  # type: ignore[arg-type]
    assert f"{option}=True needs a parameter `context: placet.Context`" in text


def test_generators_are_told_to_send_chunks() -> None:
    async def handler() -> Any:
        yield 1

    assert "send parts with `await context.chunk(…)`" in _refusal(lambda app: app.tool("a", "read")(handler))


def test_types_that_are_not_json_are_named() -> None:
    def takes(thing: Opaque) -> None:
        pass

    def returns() -> Opaque:
        return Opaque()

    def calls(back: Callable[[], int]) -> None:
        pass

    assert "parameter 'thing' of" in _refusal(lambda app: app.tool("a", "read")(takes))
    assert "the output of" in _refusal(lambda app: app.tool("a", "read")(returns))
    assert "without JSON Schema" in _refusal(lambda app: app.tool("a", "read")(calls))


def test_annotations_that_only_a_type_checker_sees_are_explained() -> None:
    def handler(order: Unseen) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    text = _refusal(lambda app: app.tool("a", "read")(handler))
    assert "annotated with 'Unseen', which cannot be found" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"risk": "huge"}, "risk has 'huge'; say one of 'low', 'medium', 'high', 'critical'"),
        ({"hazards": ["money"]}, "hazards has 'money'; say one of 'write', 'delete'"),
        ({"hazards": "write"}, "write hazards=['write']"),
        ({"key": "maybe"}, "key has 'maybe'"),
        ({"key_scope": "world"}, "key_scope has 'world'"),
        ({"timeout": 0}, "timeout is 0; say a positive span in seconds"),
        ({"retry_delay": -1}, "retry_delay is -1; say a positive span in seconds"),
        ({"retry_multiplier": 0.5}, "retry_multiplier is 0.5; say a number from 1 to 10"),
        ({"queue_delay_max": timedelta(0)}, "queue_delay_max is datetime.timedelta(0); say a positive span"),
        ({"effect_key_ttl": 60}, "effect_key_ttl belongs to effect='idempotent'"),
        ({"input_schema": {"$ref": "https://example.com/s.json"}}, "refers to 'https://example.com/s.json'"),
        ({"input_schema": {"default": float("nan")}}, "is not JSON"),
        ({"version": "one two"}, "version 'one two'"),
    ],
)
def test_words_that_do_not_exist_are_answered_with_those_that_do(options: dict[str, Any], text: str) -> None:
    assert text in _refusal(lambda app: app.tool("a", "unsafe", **options)(lambda: None))


def test_what_is_said_of_retries_is_promised_and_the_rest_left_to_the_server() -> None:
    app = placet.App("shop")
    app.tool(
        "a",
        "read",
        attempts_max=5,
        retry_delay=0.5,
        retry_delay_max=timedelta(minutes=1),
        retry_multiplier=3,
        retry_elapsed_max=3600,
        queue_delay_max=60,
    )(lambda: None)
    app.tool("b", "read")(lambda: None)
    said, unsaid = (tool.capability.contract for tool in app.tools)
    spans = [said.retry.initial_delay, said.retry.delay_max, said.retry.elapsed_max]
    assert [0.5, 60, 3600] == [span.ToTimedelta().total_seconds() for span in spans]
    assert (5, 3) == (said.retry.attempts_max, said.retry.multiplier)
    assert timedelta(minutes=1) == said.limits.queue_delay_max.ToTimedelta()
    assert (0, 0) == (unsaid.retry.ByteSize(), unsaid.limits.ByteSize())


@pytest.mark.parametrize("name", ["", "Orders", "orders..refund", "orders.", "a" * 129, "orders-refund"])
def test_names_are_dotted_lower_case_words(name: str) -> None:
    assert "use dotted lower-case words" in _refusal(lambda app: app.tool(name, "read")(lambda: None))


def test_an_app_name_is_a_manifest_name() -> None:
    with pytest.raises(DeclarationError, match="use lower-case letters"):
        placet.App("My Shop")


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("no_such_module:app", "there is no module 'no_such_module'"),
        ("placet.sample.shop:application", "'placet.sample.shop' has no 'application'"),
        ("placet.sample.shop:ORDERS", "is a dict; name the placet.App"),
        ("nobody", "no app 'nobody' is installed"),
    ],
)
def test_an_app_that_is_not_there_says_where_it_was_looked_for(reference: str, text: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(text)):
        placet.load_app(reference)


def test_an_app_is_loaded_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corner_shop.py").write_text("import placet\napp = placet.App('corner')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    app = placet.load_app("corner_shop:app")
    assert ("corner", "corner_shop:app") == (app.name, app.manifest().local.app)
    sys.modules.pop("corner_shop")


def test_a_module_that_an_app_misses_is_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_shop.py").write_text("import a_module_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    with pytest.raises(ModuleNotFoundError, match="a_module_nobody_has"):
        placet.load_app("broken_shop:app")


def test_words_of_a_failure_are_checked() -> None:
    with pytest.raises(ValueError, match="category is one of invalid, not_found"):
        placet.Failure("x", category="odd")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="effect is one of unknown, not_done, done"):
        placet.Failure("x", effect="maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="code has 1 to 64 characters"):
        placet.Failure("")


def test_a_lambda_or_method_is_a_tool_as_well() -> None:
    class Desk:
        async def look(self, order: str) -> str:
            return order

    app = placet.App("desk")
    app.tool("desk.look", "read")(Desk().look)
    assert "A" == asyncio.run(app.tools[0].call(None, '{"order": "A"}'))
