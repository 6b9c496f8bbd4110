"""An app with an agent for each boundary at which a run of a session is cut off, of that boundary's name."""

import placet

AT_THE_DOOR = ("before_intent_persistence", "intent_persisted")
IN_THE_RUN = ("claimed", "turn_requested", "turn_received", "turn_answered", "session_freed")
# By PLACET_LONG=1 alone: other tests cut runs off there.
SELDOM = ("before_intent_persistence", "claimed", "turn_requested")

app = placet.App("talk")
for boundary in (*AT_THE_DOOR, *IN_THE_RUN):
    app.agent(f"talk.{boundary}", model="test")
