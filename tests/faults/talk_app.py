"""An app with an agent for each boundary at which a run of a session is cut off, of that boundary's name."""

import placet
from tests.examples import LONG

AT_THE_DOOR = ("before_intent_persistence", "intent_persisted") if LONG else ("intent_persisted",)
IN_THE_RUN = (
    *(("claimed", "turn_requested") if LONG else ()),
    *("turn_received", "turn_answered", "session_freed"),
)

app = placet.App("talk")
for boundary in (*AT_THE_DOOR, *IN_THE_RUN):
    app.agent(f"talk.{boundary}", model="test")
