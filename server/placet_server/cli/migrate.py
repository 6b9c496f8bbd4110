"""`placet migrate`: the schema of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.complaint import Complaint, server_extras, store_away
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json
from placet_server.cli.output import print_document, print_table

if TYPE_CHECKING:
    from placet_server.store.migrate import SchemaStatus


def migrate(
    dsn: Annotated[
        str, typer.Option(help="Postgres 15+.", envvar="PLACET_DSN", show_envvar=True, show_default=False)
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(help="Instead: the folder of an embedded Postgres.", envvar="PLACET_DATA_DIR"),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Only look: what is applied, what is pending.")
    ] = False,
    is_json: Json = False,
) -> int:
    """Bring the schema up to date. Safe to run by several processes at once, and again.

    With --status nothing is changed, and pending migrations give exit code 8.

    \b
    Examples:
      placet migrate --dsn postgresql://placet@db/placet
      PLACET_DSN=postgresql://placet@db/placet placet migrate --status
      placet migrate --data .placet --status --json
    """
    with server_extras():
        from placet_server.embedded.error import EmbeddedError
        from placet_server.model.errors import StoreUnavailable
        from placet_server.store import migrate as schema
        from placet_server.store.connection import StoreUnfit

    import asyncio

    run = schema.status if status else schema.migrate
    try:
        with _store(dsn, data) as address:
            found = asyncio.run(run(address))
    except (StoreUnfit, EmbeddedError) as error:
        raise Complaint(str(error), ExitCode.REFUSED) from None
    except StoreUnavailable as error:
        raise store_away(error) from None
    _report(found, is_json)
    return ExitCode.PENDING if found.pending else ExitCode.SUCCEEDED


@contextmanager
def _store(dsn: str, data: Path | None) -> Iterator[str]:
    if bool(dsn) == (data is not None):
        raise Complaint(
            "say one of --dsn and --data (or PLACET_DSN, PLACET_DATA_DIR)"
            + ("" if os.environ.get("PLACET_DSN") else "; `placet dev` migrates its own folder at start")
        )
    if data is None:
        yield dsn
        return
    from placet_server.embedded.server import EmbeddedPostgres

    if not data.is_dir():
        raise Complaint(f"there is no folder {data}", ExitCode.NOT_FOUND)
    with EmbeddedPostgres(data) as postgres:
        yield postgres.dsn


def _report(found: SchemaStatus, is_json: bool) -> None:
    rows = [
        (migration, state)
        for state in ("applied", "pending", "unknown")
        for migration in getattr(found, state)
    ]
    if is_json:
        documents = [
            {
                "version": each.version,
                "name": each.name,
                "kind": each.kind,
                "checksum": each.checksum,
                "state": state,
            }
            for each, state in rows
        ]
        print_document({"up_to_date": not found.pending, "migrations": documents})
        return
    cells = [(f"{each.version:04}", each.name, each.kind, state) for each, state in rows]
    print_table(("VERSION", "NAME", "KIND", "STATE"), cells, empty="no migrations")
