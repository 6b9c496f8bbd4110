"""A model without a model: plans over the sample shop by the words of the message, so that agents can be tried without
a key, a network or luck. The same conversation always gets the same answer: no clock, no dice, no memory.

It looks an order up before it does anything about it, does what was asked for, and tells what came of each call in the
words that it was told. What it does not understand it says, and what it can do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

LOOKUP = "orders-lookup"
SEND = "messages-send"
EXPORT = "reports-export"

_ORDER = re.compile(r"\b[A-Z]-[0-9]{1,9}\b")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_QUOTED = re.compile(r"[\"“']([^\"”']{1,2000})[\"”']")
_AMOUNT = re.compile(
    r"(?:[€$]|\b(?:eur|usd)\b)\s?(\d{1,7})(?:[.,](\d{1,2}))?\b"
    r"|(?<![\w-])(\d{1,7})(?:[.,](\d{1,2}))?\s?(?:[€$]|\b(?:eur|euros?|usd|dollars?)\b)"
    r"|(?<![\w-])(\d{1,7})[.,](\d{2})(?![\w.])",
    re.IGNORECASE,
)
_MESSAGE = re.compile(
    r"\b(?:message|notify|e-?mail|inform)\b|\b(?:tell|write)\s+(?:to\s+)?(?:the customer|them|him|her|\S+@\S+)",
    re.IGNORECASE,
)
_EXPORT = re.compile(r"\b(?:export|report|all orders)\b", re.IGNORECASE)


class Deed(NamedTuple):
    """Something done with money: by which word it is asked for, with which tool, and how it is told."""

    word: re.Pattern[str]
    tool: str
    done: str
    noun: str


DEEDS = (
    Deed(re.compile(r"\breimburse", re.IGNORECASE), "payments-reimburse", "Reimbursed", "reimbursement"),
    Deed(re.compile(r"\bgoodwill\b", re.IGNORECASE), "payments-goodwill", "Given as goodwill:", "goodwill"),
    Deed(re.compile(r"\brefund|\bmoney back\b", re.IGNORECASE), "payments-refund", "Refunded", "refund"),
    Deed(re.compile(r"\bcharg(?:e|ing)\b", re.IGNORECASE), "payments-charge", "Charged", "charge"),
)


IN_CENTS = ("payments-goodwill", "payments-reimburse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that was said in the conversation. `id`: of a call, and of its result."""

    role: Literal["user", "call", "result"]
    text: str = ""
    tool: str = ""
    id: str = ""
    is_success: bool = False


class LocalCall(NamedTuple):
    tool: str
    input: dict[str, Any]


class LocalTurn(NamedTuple):
    text: str
    calls: tuple[LocalCall, ...] = ()


class _Done(NamedTuple):
    """A call with its result."""

    tool: str
    input: dict[str, Any]
    text: str
    is_success: bool

    @property
    def output(self) -> dict[str, Any]:
        try:
            value = json.loads(self.text) if self.is_success else None
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {}


def plan_turn(lines: Sequence[Line], tools: frozenset[str]) -> LocalTurn:
    """What it says next; `tools`: by their aliases."""
    wish, orders, done = _read(lines)
    deed = next((each for each in DEEDS if each.word.search(wish)), None)
    wants_message = bool(_MESSAGE.search(wish))
    if _EXPORT.search(wish) and not orders:
        return _export(done, tools)
    if not orders or LOOKUP not in tools:
        return LocalTurn(_can_do(tools, has_wish=bool(deed or wants_message)))
    looked = {each.input.get("order"): each for each in done if each.tool == LOOKUP}
    unknown = [order for order in orders if order not in looked]
    if unknown:
        return LocalTurn(
            f"I look up {_listed(unknown)}.", tuple(LocalCall(LOOKUP, {"order": order}) for order in unknown)
        )
    found = [each for order in orders if (each := looked[order]).output]
    next_turn = (_act(deed, wish, found, done, tools) if deed else None) or (
        _write(wish, found, done, tools) if wants_message else None
    )
    return next_turn or LocalTurn(_told(orders, looked, done, deed, wants_message, tools))


def _read(lines: Sequence[Line]) -> tuple[str, list[str], list[_Done]]:
    """The newest wish, the orders that it is about, and what was done for it. A wish that names no order is about those
    that were last named.
    """
    begin = max((index for index, line in enumerate(lines) if line.role == "user"), default=0)
    said = [line.text for line in lines[: begin + 1] if line.role == "user"]
    orders = next(
        (found for text in reversed(said) if (found := list(dict.fromkeys(_ORDER.findall(text))))), []
    )
    results = {line.id: line for line in lines[begin:] if line.role == "result"}
    done = [
        _Done(call.tool, _object(call.text), results[call.id].text, results[call.id].is_success)
        for call in lines[begin:]
        if call.role == "call" and call.id in results
    ]
    return (said[-1] if said else ""), orders, done


def _act(
    deed: Deed, wish: str, found: Sequence[_Done], done: Sequence[_Done], tools: frozenset[str]
) -> LocalTurn | None:
    """The calls that are still to be made, each once: what did not succeed is not tried again."""
    made = {each.input.get("order") for each in done if each.tool == deed.tool}
    due = [each for each in found if each.input["order"] not in made]
    if not due or deed.tool not in tools:
        return None
    calls = tuple(
        LocalCall(
            deed.tool, _money(deed, each.input["order"], _amount(wish) or str(each.output.get("total", "")))
        )
        for each in due
    )
    return LocalTurn(f"I ask for the {deed.noun} of {_listed([each.input['order'] for each in due])}.", calls)


def _write(
    wish: str, found: Sequence[_Done], done: Sequence[_Done], tools: frozenset[str]
) -> LocalTurn | None:
    """Only when everything before it has succeeded: nobody is told of what did not happen."""
    if SEND not in tools or not found or any(each.tool == SEND for each in done):
        return None
    if not all(each.is_success for each in done):
        return None
    order = found[0].output
    to = _ADDRESS.search(wish)
    words = _QUOTED.search(wish)
    deeds = [_happened(each, done_by) for each in done if (done_by := _deed_of(each.tool))]
    text = (
        words[1] if words else " ".join(deeds) or f"Your order {order.get('order')} is {order.get('status')}."
    )
    address = to[0] if to else str(order.get("customer", ""))
    return LocalTurn(f"I write to {address}.", (LocalCall(SEND, {"to": address, "text": text}),))


def _export(done: Sequence[_Done], tools: frozenset[str]) -> LocalTurn:
    made = next((each for each in done if each.tool == EXPORT), None)
    if made is not None:
        return LocalTurn(f"Exported {made.output.get('orders')} orders." if made.is_success else made.text)
    if EXPORT not in tools:
        return LocalTurn(_can_do(tools, has_wish=True))
    return LocalTurn("I export all orders.", (LocalCall(EXPORT, {}),))


def _told(
    orders: Sequence[str],
    looked: Mapping[Any, _Done],
    done: Sequence[_Done],
    deed: Deed | None,
    wants_message: bool,
    tools: frozenset[str],
) -> str:
    sentences = [f"{order}: {looked[order].text}" for order in orders if not looked[order].output]
    acted = [each for each in done if (deed and each.tool == deed.tool) or each.tool == SEND]
    sentences += [_sentence(each) for each in acted]
    if deed is None and not wants_message:
        sentences += [_standing(looked[order].output) for order in orders if looked[order].output]
    if deed is not None and deed.tool not in tools:
        sentences.append(f"I have no tool for a {deed.noun}.")
    if wants_message and not any(each.tool == SEND for each in done):
        sentences.append("Nobody was written to." if SEND in tools else "I have no tool to write to anybody.")
    return " ".join(sentences)


def _sentence(each: _Done) -> str:
    deed = _deed_of(each.tool)
    if deed is None:
        to = each.input.get("to")
        return f"Wrote to {to}." if each.is_success else f"The message to {to}: {each.text}"
    return (
        _happened(each, deed)
        if each.is_success
        else f"The {deed.noun} of {each.input.get('order')}: {each.text}"
    )


def _happened(each: _Done, deed: Deed) -> str:
    return f"{deed.done} {each.output.get('amount')} for {each.input.get('order')}."


def _standing(order: Mapping[str, Any]) -> str:
    return f"Order {order.get('order')} of {order.get('customer')} over {order.get('total')} is {order.get('status')}."


def _money(deed: Deed, order: str, amount: str) -> dict[str, Any]:
    if deed.tool in IN_CENTS:
        return {"order": order, "amount_cents": int(amount.replace(".", "") or "0")}
    return {"order": order, "amount": amount}


def _amount(wish: str) -> str:
    found = _AMOUNT.search(wish)
    if found is None:
        return ""
    whole, part = next(
        pair for pair in zip(found.groups()[::2], found.groups()[1::2], strict=True) if pair[0]
    )
    return f"{int(whole)}.{(part or '').ljust(2, '0')}"


def _deed_of(tool: str) -> Deed | None:
    return next((deed for deed in DEEDS if deed.tool == tool), None)


def _can_do(tools: frozenset[str], *, has_wish: bool) -> str:
    skills = [word for tool, word in _SKILLS.items() if tool in tools]
    if not skills:
        return "I am a local model for the sample shop, and have none of its tools here."
    asked = "Which order is it about? It has a number like A-1001. " if has_wish else ""
    return f"{asked}I am a local model for the sample shop. I can {_listed(skills, 'and')}."


_SKILLS: Mapping[str, str] = {
    LOOKUP: "look up orders",
    "payments-refund": "refund them",
    "payments-reimburse": "reimburse them",
    "payments-goodwill": "give goodwill",
    "payments-charge": "charge them",
    SEND: "write to customers",
    EXPORT: "export all orders",
}


def _listed(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
