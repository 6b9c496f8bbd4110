"""Every named query is valid SQL on the migrated schema; the compiler touches parameters and nothing else."""

from pathlib import Path

import asyncpg
import pytest

from placet_server.store.queries import Query, QueryFile, QueryFileError, load_all
from tests.postgres import Database


def compile_one(folder: Path, sql: str) -> Query:
    path = folder / "one.sql"
    path.write_text(f"-- name: one\n-- Purpose.\n{sql}\n")
    return QueryFile(path)["one"]


@pytest.mark.both_servers
async def test_every_query_is_prepared_on_the_migrated_schema(database: Database) -> None:
    connection = await asyncpg.connect(database.dsn)
    problems = []
    for file in load_all():
        for query in file.values():
            try:
                statement = await connection.prepare(query.sql)
                assert len(query.parameters) == len(statement.get_parameters())
            except (asyncpg.PostgresError, AssertionError) as error:
                problems.append(f"{file.path.name} {query.name}: {error}")
    await connection.close()
    assert problems == []


@pytest.mark.parametrize(
    ("sql", "compiled", "parameters"),
    [
        ("select :b, :a, :b", "select $1, $2, $1", ("b", "a")),
        ("select :ids::uuid[]", "select $1::uuid[]", ("ids",)),
        ("select now()::text, 'a:b', E'it\\':c', 'it'':d'", None, ()),
        ('select x as "y:z"', None, ()),
        ("select 1 -- not :here\n", "select 1 -- not :here", ()),
        ("select /* nor :here */ 1", None, ()),
        ("select $$ :no $$, $tag$ :no $tag$, :yes", "select $$ :no $$, $tag$ :no $tag$, $1", ("yes",)),
        ("select items[1:2], items[low:high]", None, ()),
        ("select f(a => :a, b := 1)", "select f(a => $1, b := 1)", ("a",)),
        ("select 1;", "select 1", ()),
    ],
)
def test_only_parameters_are_compiled(
    tmp_path: Path, sql: str, compiled: str | None, parameters: tuple[str, ...]
) -> None:
    query = compile_one(tmp_path, sql)
    assert (compiled or sql, parameters) == (query.sql, query.parameters)


def test_arguments_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    query = compile_one(tmp_path, "select :b, :a, :b")
    assert (2, 1) == query.arguments(a=1, b=2)


def test_a_part_stands_in_every_query_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "two.sql"
    path.write_text(
        "-- part: row\n-- Purpose.\nwhere id = :id and word <> '{}'\n\n"
        "-- name: read\n-- Purpose.\nselect :what {row}\n\n"
        "-- name: clear\n-- Purpose.\ndelete from t {row}\n"
    )
    queries = QueryFile(path)
    assert ["read", "clear"] == list(queries)
    assert ("select $1 where id = $2 and word <> '{}'", ("what", "id")) == (
        queries["read"].sql,
        queries["read"].parameters,
    )
    assert "delete from t where id = $1 and word <> '{}'" == queries["clear"].sql


@pytest.mark.parametrize("values", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}])
def test_wrong_arguments_are_refused(tmp_path: Path, values: dict[str, object]) -> None:
    query = compile_one(tmp_path, "select :b, :a, :b")
    with pytest.raises(TypeError, match="one takes"):
        query.arguments(**values)


@pytest.mark.parametrize(
    "text",
    [
        "-- name: one\nselect 1\n",
        "-- name: one\n-- Purpose.\n",
        "-- name: One\n-- Purpose.\nselect 1\n",
        "-- name: one\n-- Purpose.\nselect 1\n-- name: one\n-- Purpose.\nselect 1\n",
        "-- name: one\n-- Purpose.\nselect {two}\n",
        "-- part: two\n-- Purpose.\n\n-- name: one\n-- Purpose.\nselect {two}\n",
    ],
    ids=["no purpose", "no SQL", "odd name", "twice", "no such part", "a part without SQL"],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.sql").write_text(text)
    with pytest.raises(QueryFileError):
        QueryFile(tmp_path / "bad.sql")
