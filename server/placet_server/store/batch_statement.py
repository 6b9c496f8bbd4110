"""Which statement writes a batch: the least one that is enough for what it holds, as for Postgres to start a statement
costs more than a row does.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from operator import itemgetter
from typing import Any

import orjson

from placet_server.store import queries
from placet_server.store.batch_item import Admission, SubmissionRow
from placet_server.store.lineage import DEPTH_MAX

SQL = queries.load("action")
OF_PARENTS = queries.load("batch")


class Kind(IntEnum):
    """Which statements write an item. 0 are those of the hot path, which may stand in one batch."""

    FLUSH = 0
    ADVANCE_QUEUED = 1
    SUBMIT = 2
    ADMIT_MESSAGE = 3
    SUBMIT_MESSAGE = 4
    SUBMIT_WAITING = 5
    PARK = 6
    ADVANCE_STEP = 7
    # Children, and entries of runs.
    OF_PARENT = 8
    SUBMIT_BEGUN = 9


def statement_for(
    kind: Kind, admissions: list[Any], advances: list[Any], boot_id: str, now: datetime | None
) -> tuple[str, tuple[object, ...]]:
    """The statement that is enough for what the batch holds, all of one kind, and its arguments.

    In the order of their keys and ids: two writers that meet on the same rows must not lock them crosswise.
    """
    admissions.sort(key=_key_and_id)
    advances.sort(key=itemgetter("action_id"))
    values: dict[str, object] = {"now": now}
    if admissions:
        values |= {"admissions": orjson.dumps(admissions).decode(), "boot_id": boot_id}
    if advances:
        values["advances"] = orjson.dumps(advances).decode()
    if kind is Kind.OF_PARENT:
        query = OF_PARENTS[
            "append_and_admit_child" if admissions and advances else "append" if advances else "admit_child"
        ]
        if admissions:
            values["depth_max"] = DEPTH_MAX
    elif kind is Kind.SUBMIT:
        query = SQL["take_over_and_submit" if _takes_over(admissions) else "submit"]
    elif kind is Kind.ADMIT_MESSAGE:
        query = SQL["admit_message"]
    elif kind is Kind.SUBMIT_MESSAGE:
        query = SQL["submit_message"]
    elif kind is Kind.SUBMIT_WAITING:
        query = SQL["submit_waiting"]
    elif kind is Kind.SUBMIT_BEGUN:
        query = SQL["submit_begun"]
    elif kind is Kind.ADVANCE_QUEUED:
        query = SQL["advance_queued"]
        values["boot_id"] = boot_id
    elif kind is Kind.ADVANCE_STEP:
        query = SQL["advance_step"]
        values["boot_id"] = boot_id
    elif kind is Kind.PARK:
        query = SQL["park"]
    elif _takes_over(admissions):
        query = SQL["take_over_and_advance"]
        values.setdefault("advances", "[]")
    elif not advances:
        query = SQL["admit"]
    else:
        query = SQL["admit_and_advance" if admissions else "advance"]
    return query.sql, query.arguments(**values)


def _takes_over(admissions: list[Any]) -> bool:
    return any(admission["predecessor_id"] is not None for admission in admissions)


def _key_and_id(admission: Admission | SubmissionRow) -> tuple[str, str]:
    return admission["key_digest"] or "", admission["action_id"]
