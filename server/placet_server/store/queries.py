"""Named queries: ``store/sql/<stem>.sql``, compiled once, at import of the module that owns the stem.

A file holds any number of queries, each headed by its name and one line of purpose:

    -- name: renew
    -- Extend the lease of a boot that is still alive.
    update instances set heartbeat_time = :now where boot_id = :boot_id

``:name`` becomes ``$n``, numbered by first appearance; strings, quoted names, comments and casts (``::``)
are left alone. Text before the first name is the file's essay.

What several queries have in common is written once, as a part headed ``-- part: lease`` and a line of purpose, and
stands where ``{lease}`` is. A part may have parameters, and no parts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SQL_FOLDER = Path(__file__).parent / "sql"

_HEAD = re.compile(r"^-- (name|part): *(\S*) *$", re.MULTILINE)
# What a token may begin with is looked at first, as most of a file is none.
_TOKEN = re.compile(
    r"""
    (?=[-/eE'"$:{])
    (?:
        (?P<skip>
            --[^\n]*
          | /\*.*?\*/
          | \b[eE]'(?:[^'\\]|\\.|'')*'
          | '(?:[^']|'')*'
          | "(?:[^"]|"")*"
          | (?P<dollar>\$[A-Za-z_]*\$).*?(?P=dollar)
          | ::
          | :=
        )
      | (?<![\w\]]):(?P<parameter>[a-z_][a-z0-9_]*)
      | \{(?P<part>\w*)\}
    )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One compiled query: ``sql`` with ``$n``, and which parameter each ``n`` is."""

    name: str
    purpose: str
    sql: str
    parameters: tuple[str, ...]

    def arguments(self, **values: object) -> tuple[object, ...]:
        """The values in the order of ``$n``. Raises TypeError unless exactly the parameters are given."""
        if len(values) != len(self.parameters):
            raise TypeError(f"{self.name} takes {self.parameters}, not {tuple(values)}")
        try:
            return tuple(values[parameter] for parameter in self.parameters)
        except KeyError as error:
            raise TypeError(f"{self.name} takes {self.parameters}, not {tuple(values)}") from error


class QueryFile(Mapping[str, Query]):
    """The queries of one file by name. A missing name raises KeyError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queries = _parse(path)

    def __getitem__(self, name: str) -> Query:
        return self._queries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


class QueryFileError(Exception):
    """A query file is malformed; the message names file and query."""


def load(stem: str) -> QueryFile:
    """The queries of ``store/sql/<stem>.sql``. Raises QueryFileError, FileNotFoundError."""
    return QueryFile(SQL_FOLDER / f"{stem}.sql")


def load_all() -> list[QueryFile]:
    """Every query file there is, for the test that prepares them all."""
    return [QueryFile(path) for path in sorted(SQL_FOLDER.glob("*.sql"))]


def _parse(path: Path) -> dict[str, Query]:
    pieces = _HEAD.split(path.read_text(encoding="utf-8"))
    found: dict[str, dict[str, tuple[str, str]]] = {"name": {}, "part": {}}
    for kind, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise QueryFileError(f"{path.name}: {name!r} is no name for a query")
        if name in found[kind]:
            raise QueryFileError(f"{path.name}: {name} is there twice")
        found[kind][name] = _read(path, name, body)
    parts = {name: text for name, (_, text) in found["part"].items()}
    return {name: _compile(path, name, *read, parts) for name, read in found["name"].items()}


def _read(path: Path, name: str, body: str) -> tuple[str, str]:
    purpose, _, text = body.strip().partition("\n")
    if not purpose.startswith("-- ") or not text.strip():
        raise QueryFileError(f"{path.name}: {name} needs a line of purpose, and SQL after it")
    return purpose.removeprefix("-- "), text.strip().removesuffix(";")


def _compile(path: Path, name: str, purpose: str, text: str, parts: Mapping[str, str]) -> Query:
    positions: dict[str, int] = {}

    def place(token: re.Match[str]) -> str:
        parameter = token["parameter"]
        if parameter is None:
            return token[0]
        return f"${positions.setdefault(parameter, len(positions) + 1)}"

    def insert(token: re.Match[str]) -> str:
        part = token["part"]
        if part is None:
            return token[0]
        if part not in parts:
            raise QueryFileError(f"{path.name}: {name} lacks the part {part!r}")
        return parts[part]

    sql = _TOKEN.sub(place, _TOKEN.sub(insert, text))
    return Query(name=name, purpose=purpose, sql=sql, parameters=tuple(positions))
