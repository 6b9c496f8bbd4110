"""Messages of the contract as JSON documents: names as in the proto, words without their enum's prefix, times as
RFC 3339, spans as seconds, payloads parsed. Every member is present, so that the shape never depends on the value.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PAYLOAD_SUFFIX = "_json"


def document_of(message: Message) -> dict[str, Any]:
    """`output_json` becomes `output`, parsed (null when empty); members of a oneof appear only when set."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and not message.HasField(field.name):
            continue
        name = field.name
        is_text = field.type == FieldDescriptor.TYPE_STRING
        if is_text and (name == "json" or name.endswith(_PAYLOAD_SUFFIX)):
            found[name.removesuffix(_PAYLOAD_SUFFIX)] = parsed(getattr(message, name))
        else:
            found[name] = _value(message, field)
    return found


def parsed(text: str) -> Any:
    """Of a payload; None for an empty one."""
    return json.loads(text) if text else None


def word(descriptor: EnumDescriptor, number: int) -> str:
    """Of an enum value, without the enum's prefix; "" for unspecified, the number for one younger than this client."""
    prefix = _WORD_START.sub("_", descriptor.name).upper() + "_"
    value = descriptor.values_by_number.get(number)
    name = str(number) if value is None else value.name.removeprefix(prefix)
    return "" if name == "UNSPECIFIED" else name


def time_text(stamp: Timestamp) -> str:
    """RFC 3339 in UTC; "" when unset."""
    return stamp.ToJsonString() if stamp.ByteSize() else ""


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {str(key): value[key] for key in sorted(value)}
    if field.is_repeated:
        return [_single(field, each) for each in value]
    if field.message_type is not None and not message.HasField(field.name):
        return None
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if isinstance(value, Timestamp):
        return time_text(value)
    if isinstance(value, Duration):
        return value.ToTimedelta().total_seconds()
    if isinstance(value, Message):
        return document_of(value)
    if field.enum_type is not None:
        return word(field.enum_type, value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
