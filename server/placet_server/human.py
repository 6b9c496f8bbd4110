"""What the server itself offers to every tenant: `human.input`, a question to people.

It is an action like any other. It waits for an answer from its admission on, and its handler has nothing to do but to
return it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.decision.question import answer_to
from placet_server.core.publication.journal import Journal
from placet_server.model.capability import CapabilityKind
from placet_server.model.manifest import Manifest
from placet_server.model.question import CAPABILITY, INPUT_SCHEMA, MANIFEST
from placet_server.rpc.convert.capability import manifest_of

VERSION = "1"


def human_app(journal: Journal) -> App:
    app = App(MANIFEST)

    @app.tool(
        CAPABILITY,
        "read",
        version=VERSION,
        title="Question",
        description="Asks people, and returns what the first one who may has answered.",
        input_schema=INPUT_SCHEMA,
        output_schema={},
        attempts_max=100,
    )
    async def human_input(context: Context, question: Any) -> Any:
        answer = await answer_to(journal, context.tenant, context.action_id)
        if answer is None:
            raise Failure("no_answer", "the answer was taken back")
        return json.loads(answer)

    return app


def human_manifest(app: App) -> Manifest:
    """With the kind that nobody else's capabilities have."""
    manifest = manifest_of(app.manifest())
    capabilities = tuple(replace(each, kind=CapabilityKind.HUMAN) for each in manifest.capabilities)
    return replace(manifest, capabilities=capabilities)
