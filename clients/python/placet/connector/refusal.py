"""Why nothing was begun: a status before `accepted`."""

from __future__ import annotations

import grpc


class Refused(Exception):
    """Ends the call with this status. The text is for the dialler's log, and names no secret."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
