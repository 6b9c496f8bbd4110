"""Bytes → a request within its bounds, or MALFORMED_REQUEST that says where it breaks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from protovalidate import Validator, Violation

from buf.validate import validate_pb2
from placet.v1.approval_service_pb2 import BatchDecideApprovalsRequest
from placet.v1.recovery_service_pb2 import RedriveRequest
from placet.v1.runtime_service_pb2 import CancelActionsRequest, SubmitBatchRequest
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.rpc.call import Method, Rpc
from placet_server.rpc.plain_request import PLAIN

# The status names 16; more are only counted.
_VIOLATIONS_KEPT = 256
# Postgres cannot keep it in a text, and no name, key or JSON has a use for it.
_NUL = b"\x00"
# What is wrong with one item of these refuses that item alone, so their handlers check each.
ITEM_BY_ITEM = frozenset(
    {SubmitBatchRequest.DESCRIPTOR.full_name, BatchDecideApprovalsRequest.DESCRIPTOR.full_name}
)
# What changes all that a request selects. A member that this server does not know, of a later release, may be what
# was to narrow that, or to have it only looked at.
SELECTING = frozenset({CancelActionsRequest.DESCRIPTOR.full_name, RedriveRequest.DESCRIPTOR.full_name})
_NUL_TOLD = "a text has no NUL character"


class Validation:
    """Parses and checks. Rules come from the contract's buf.validate options."""

    def __init__(self) -> None:
        self._validator = _validator()

    def check_of(self, method: Method) -> Callable[[Rpc[Any], bytes], None]:
        """What sets `rpc.request` for calls of the method. It raises MalformedRequest."""
        parse = method.request_type.FromString
        name = method.request_type.DESCRIPTOR.full_name
        check_rules = self._rules_of(method.request_type)
        is_whole = name not in ITEM_BY_ITEM
        selects = name in SELECTING

        def check(rpc: Rpc[Any], raw: bytes) -> None:
            try:
                rpc.request = request = parse(raw)
            except DecodeError:
                raise MalformedRequest(
                    detail=f"the bytes are no {name}, or a text in it is not UTF-8"
                ) from None
            if is_whole and _NUL in raw:
                _refuse_nul(request)
            if selects:
                _refuse_unknown(request)
            check_rules(request)

        return check

    def item_check_of(self, item_type: type[Message]) -> Callable[[Any], None]:
        """The same for messages within a request of ITEM_BY_ITEM."""
        check_rules = self._rules_of(item_type)

        def check(item: Any) -> None:
            if _NUL in item.SerializeToString():
                _refuse_nul(item)
            check_rules(item)

        return check

    def _rules_of(self, message_type: type[Message]) -> Callable[[Any], None]:
        """Raises MalformedRequest."""
        collect = self._validator.collect_violations
        ruled = has_rules(message_type.DESCRIPTOR, set())
        is_plain = PLAIN.get(message_type.DESCRIPTOR.full_name, _never)

        def check(message: Any) -> None:
            if ruled and not is_plain(message) and (violations := collect(message)):
                raise MalformedRequest(violations=tuple(_told(v) for v in violations[:_VIOLATIONS_KEPT]))

        return check


@cache
def _validator() -> Validator:
    """One for the process: it compiles the rules of a message when it first meets it, and keeps them."""
    return Validator()


def _refuse_nul(message: Message) -> None:
    if path := nul_path(message):
        raise MalformedRequest(violations=(FieldViolation(field=path, rule="nul", description=_NUL_TOLD),))


def _refuse_unknown(message: Message) -> None:
    if path := unknown_path(message, "request"):
        told = (
            "has a member that this server does not know: nothing was selected; ask a server of your release"
        )
        raise MalformedRequest(violations=(FieldViolation(field=path, rule="unknown", description=told),))


def unknown_path(message: Message, path: str) -> str:
    """The first message with a member that is not of this release; empty if there is none."""
    if len(UnknownFieldSet(message)):
        return path
    for field, value in message.ListFields():
        for name, item in _items(field, value):
            if isinstance(item, Message) and (inner := unknown_path(item, name)):
                return inner if path == "request" else f"{path}.{inner}"
    return ""


def nul_path(message: Message) -> str:
    """The first field that is a text with NUL in it; empty if there is none."""
    for field, value in message.ListFields():
        for name, item in _items(field, value):
            if isinstance(item, str) and "\x00" in item:
                return name
            if isinstance(item, Message) and (inner := nul_path(item)):
                return f"{name}.{inner}"
    return ""


def _items(field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Any]]:
    """Every value of a field beside its name; of a map the keys, too."""
    if not field.is_repeated:
        yield field.name, value
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key in value:
            yield field.name, key
            yield field.name, value[key]
    else:
        for index, item in enumerate(value):
            yield f"{field.name}[{index}]", item


def _never(_: Any) -> bool:
    return False


def has_rules(message: Any, seen: set[str]) -> bool:
    """Whether a message, given by its descriptor, or one within it has any rule."""
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    if message.GetOptions().HasExtension(validate_pb2.message):
        return True
    if any(one.GetOptions().HasExtension(validate_pb2.oneof) for one in message.oneofs):
        return True
    return any(_field_has_rules(field, seen) for field in message.fields)


def _field_has_rules(field: FieldDescriptor, seen: set[str]) -> bool:
    if field.GetOptions().HasExtension(validate_pb2.field):
        return True
    return field.message_type is not None and has_rules(field.message_type, seen)


def _told(violation: Violation) -> FieldViolation:
    proto = violation.proto
    path = ""
    for element in proto.field.elements if proto.field is not None else ():
        path += ("." if path else "") + (element.field_name or "") + _subscript(element)
    return FieldViolation(field=path, rule=proto.rule_id or "", description=proto.message or "")


def _subscript(element: Any) -> str:
    subscript = element.subscript
    return "" if subscript is None else f"[{subscript.value!r}]"
