"""What entries of a run say to people: words, and which calls were made with them. Of messages as they are kept only
their shape is known here, so it needs none of what asks models.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from placet_server.core.publication.called import Called, called
from placet_server.harness.plan import FINISHED
from placet_server.model.ask import Part, parts_of, said_texts
from placet_server.model.entry import Answered, EntryType
from placet_server.model.entry_text import MEMORY_BROKEN, EntryRefused, of_text
from placet_server.store.session_run import Said

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """`said_by_agent` False: it was asked. `problem`: why neither parts nor calls are told; empty: they are."""

    said_by_agent: bool
    parts: tuple[Part, ...]
    calls: tuple[Called, ...] = ()
    problem: str = ""


def spoken(said: Said) -> Spoken:
    """What cannot be read says so, and hides nothing of what was said before and after it."""
    if said.input is not None:
        return Spoken(said_by_agent=False, parts=parts_of(json.loads(said.input)))
    try:
        return _answered(said)
    except EntryRefused as error:
        where = f"entry {said.ordinal} of run {said.action_id}"
        _log.error("%s, an answer, cannot be told: %s", where, error, extra={"action_id": said.action_id})
        return Spoken(said_by_agent=True, parts=(), problem=MEMORY_BROKEN)


def _answered(said: Said) -> Spoken:
    """Raises EntryRefused."""
    answered = of_text(EntryType.ANSWERED, said.body)
    assert isinstance(answered, Answered)
    if answered.summary:
        # Of the run for itself: it said nothing by it.
        return Spoken(said_by_agent=True, parts=())
    texts = said_texts([text for message in answered.messages for text in _texts(message)])
    parts = [Part(text=text) for text in texts]
    finals = {call.call for call in answered.calls if call.refusal == FINISHED}
    if answered.output is not None and finals:
        parts.append(Part(json=answered.output))
    return Spoken(
        said_by_agent=True,
        parts=tuple(parts),
        calls=tuple(each for each in called(said.action_id, answered) if each.call not in finals),
    )


def _texts(message: str) -> list[str]:
    """Raises EntryRefused for what is no message."""
    try:
        document = json.loads(message)
    except json.JSONDecodeError as error:
        raise EntryRefused(f"its message is no JSON: {error}") from None
    parts = document.get("parts") if isinstance(document, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise EntryRefused("its message has no parts")
    texts = [part["content"] for part in parts if part.get("part_kind") == "text" and part.get("content")]
    if not all(isinstance(text, str) for text in texts):
        raise EntryRefused("its message has a text that is none")
    return texts
