"""From what somebody types to an approval, or an action."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.session import MATCHES_SHOWN_MAX, prefix_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placet import Client
    from placet.v1.action_pb2 import Action

SCANNED_MAX = 1000
SESSIONS_MAX = 500


class Found(NamedTuple):
    """`approval_id` "": the action needs none."""

    action_id: str
    approval_id: str
    is_action: bool


def find_approval(client: Client, text: str) -> str:
    """The approval, or that of the action, that begins with `text`. Raises Complaint if none does, or several do."""
    found = find_either(client, text)
    if not found.approval_id:
        raise Complaint(f"action {found.action_id} needs no approval", ExitCode.NOT_FOUND)
    return found.approval_id


def find_either(client: Client, text: str) -> Found:
    """The action, or else the approval, that begins with `text`: an action and its own approval may begin alike.

    A whole id finds any; a beginning those actions, and those approvals that are open. Raises Complaint.
    """
    prefix = prefix_of(text)
    matches = _whole(client, prefix) if len(prefix) == 36 else _begun(client, prefix)
    if not matches:
        _check_no_session(client, prefix)
        raise Complaint(f"no action, and no open approval, begins with {prefix}", ExitCode.NOT_FOUND)
    if len(matches) > 1:
        shown = "\n".join(f"  {each.action_id if each.is_action else each.approval_id}" for each in matches)
        raise Complaint(f"several begin with {prefix}; say more of it:\n{shown}", kind="PREFIX_AMBIGUOUS")
    return matches[0]


def _whole(client: Client, id_: str) -> list[Found]:
    from placet.errors import NotFoundError

    try:
        approval = client.approval(id_)
    except NotFoundError:
        try:
            return [_of_action(client.get(id_))]
        except NotFoundError:
            _check_no_session(client, id_)
            raise
    return [Found(approval.action_id, approval.approval_id, is_action=False)]


def _begun(client: Client, prefix: str) -> list[Found]:
    from placet.errors import PermissionDeniedError

    found: dict[str, Found] = {}
    try:
        for action in islice(
            client.list(action_id_prefix=prefix, page_size=MATCHES_SHOWN_MAX), MATCHES_SHOWN_MAX
        ):
            found[action.action_id] = _of_action(action)
    except PermissionDeniedError:
        # Who only decides need not see actions.
        pass
    for each in _open_ones(client, prefix):
        found.setdefault(each.action_id, each)
    return list(found.values())


def _check_no_session(client: Client, prefix: str) -> None:
    """Raises Complaint if that is what it is."""
    from placet.errors import PermissionDeniedError

    try:
        sessions = islice(client.sessions(page_size=SESSIONS_MAX), SESSIONS_MAX)
        found = next((each.session_id for each in sessions if each.session_id.startswith(prefix)), "")
    except PermissionDeniedError:
        return
    if found:
        raise Complaint(f"{prefix} is a session: placet sessions show {found}", ExitCode.NOT_FOUND)


def _open_ones(client: Client, prefix: str) -> Iterator[Found]:
    from placet.errors import PermissionDeniedError

    try:
        for approval in islice(
            client.approvals(states=("pending", "granted"), page_size=SCANNED_MAX), SCANNED_MAX
        ):
            if approval.approval_id.startswith(prefix):
                yield Found(approval.action_id, approval.approval_id, is_action=False)
    except PermissionDeniedError:
        return


def _of_action(action: Action) -> Found:
    return Found(action.action_id, action.approval_id, is_action=True)
