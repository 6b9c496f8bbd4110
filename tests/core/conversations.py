"""Sessions with `shop.helper`, as tests of them begin and go on with them."""

from __future__ import annotations

from typing import Any

from placet_server.core.admission.session import create_session
from placet_server.core.admission.submit import Submitted
from placet_server.core.kernel import Kernel
from placet_server.core.publication.session import list_said
from placet_server.harness.spoken import spoken
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.session import NewSession, OnBusy, SessionUse
from tests.core.kernels import ALICE, put, read, work_off


async def session(kernel: Kernel, caller: Caller = ALICE, **wanted: Any) -> str:
    return (await create_session(kernel.journal, caller, NewSession(**wanted))).session_id


async def put_in(
    kernel: Kernel,
    session_id: str,
    text: str,
    key: str,
    *,
    on_busy: OnBusy = OnBusy.REFUSE,
    agent: str = "shop.helper",
    **options: Any,
) -> Submitted:
    use = SessionUse(session_id=session_id, on_busy=on_busy)
    return await put(kernel, agent, {"parts": [{"text": text}]}, key, session=use, **options)


async def said_in(kernel: Kernel, session_id: str, text: str, key: str, **options: Any) -> Action:
    """The run as it stands once nothing can go on."""
    action = (await put_in(kernel, session_id, text, key, **options)).action
    await work_off(kernel)
    return await read(kernel, action.action_id)


async def conversation(kernel: Kernel, session_id: str, *, page_size: int = 2) -> list[tuple[int, str, str]]:
    """Number of the run, "user" or "agent", and the words; page by page."""
    found, after = [], (0, 0)
    while True:
        page = await list_said(kernel.journal, ALICE, session_id, after=after, page_size=page_size)
        for said in page.said:
            told = spoken(said)
            words = " ".join(part.text or "" for part in told.parts)
            found.append((said.number, "agent" if told.said_by_agent else "user", words))
        if page.next_after is None:
            return found
        after = page.next_after


def roles(request: Any) -> list[str]:
    """Of a request to the model, without what holds for all: each role, and of people what they said."""
    return [
        f"user: {message['content']}" if message["role"] == "user" else message["role"]
        for message in request.json["messages"]
        if message["role"] != "system"
    ]
