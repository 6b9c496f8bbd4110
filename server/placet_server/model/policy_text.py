"""Cedar text as policies: read once, with all that is wrong with them, and with what of a call each one looks at.

What a policy says is its canonical form without annotations; the digest over it names it in decisions. So a comment, a
description or another order changes nothing, and every other change does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import sha256
from typing import Any, NamedTuple, cast

import cedarpy
import orjson
from cedarpy import pst

from placet_server.model.manifest import Problem
from placet_server.model.policy import (
    CEDAR_BYTES_MAX,
    ID_LENGTH_MAX,
    ID_PATTERN,
    POLICIES_MAX,
)
from placet_server.model.policy_type import Wanted

ID, DESCRIPTION, APPROVAL = "id", "description", "approval"
ANNOTATIONS = (ID, DESCRIPTION, APPROVAL)
# What stands in a message of Cedar may be the text of a policy.
MESSAGE_LENGTH_MAX = 1024
POLICY_LENGTH_MAX = 32 * 1024
COMMAS_MAX = 2048
# A fraction of what would exhaust the stack.
BRACKETS_MAX = 32
LINKS_MAX = 512
# What ends policies and what nests, outside strings and comments as Cedar knows them. A string without an end hides
# nothing.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n\r]*|&&|\|\||[-+*.,;()\[\]{}]|\bif\b', re.DOTALL)
_COMMENTS = re.compile(r"//[^\n\r]*")
CONTEXT = ("input", "labels", "parent", "delegation_depth")
ROLES, GROUPS = "Role", "Group"
_SHARED_TYPES = frozenset({ROLES, GROUPS})


@dataclass(slots=True)
class Reads:
    """What of a call a policy looks at, beyond the facts of its capability and what callers of one kind share.

    `members`: of the context. `identity`: who the caller is. `input`: which members of it.
    """

    members: set[str] = field(default_factory=set)
    identity: bool = False
    input: Wanted = field(default_factory=Wanted)

    @property
    def context(self) -> bool:
        """Anything of it."""
        return bool(self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`name`: its @id, or one made of its digest. `approval`: the terms that it asks for, empty for none."""

    name: str
    digest: str
    approval: str
    text: str
    node: pst.Template
    reads: Reads

    @property
    def asks(self) -> bool:
        """For an approval, if only with empty terms."""
        return APPROVAL in self.node.annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPolicies:
    """Whole only without problems."""

    policies: tuple[Policy, ...]
    problems: tuple[Problem, ...]


def parse_policies(cedar: str) -> ParsedPolicies:
    """Takes about a millisecond a policy: not for the event loop. One by one, so that others have their turn."""
    size = len(cedar.encode(errors="surrogatepass"))
    if size > CEDAR_BYTES_MAX:
        problem = _error("cedar", "cedar_too_large", f"{size} bytes; at most {CEDAR_BYTES_MAX}.")
        return ParsedPolicies(policies=(), problems=(problem,))
    pieces = list(_pieces(cedar))
    if len(pieces) > POLICIES_MAX:
        problem = _error("cedar", "policies_too_many", f"{len(pieces)} policies; at most {POLICIES_MAX}.")
        return ParsedPolicies(policies=(), problems=(problem,))
    policies: list[Policy] = []
    problems: list[Problem] = []
    for position, piece in enumerate(pieces):
        read = _read(piece, f"policies[{position}]")
        problems += read.problems
        policies += read.policies
    problems += _name_problems(policies)
    return ParsedPolicies(policies=tuple(policies), problems=tuple(problems))


class _Piece(NamedTuple):
    """The text of one policy, and how much could be wrong with it."""

    text: str
    brackets: int
    links: int
    commas: int


def _pieces(cedar: str) -> Iterator[_Piece]:
    """One policy each. Reading one, and forgetting it, goes as deep as its expressions are nested, and knows no bound:
    the process would end. So what could nest is counted before anything is read.
    """
    begin = depth = brackets = links = commas = 0
    for found in _TOKENS.finditer(cedar):
        sign = found[0]
        if sign == ";":
            yield _Piece(cedar[begin : found.end()].strip(), brackets, links, commas)
            begin = found.end()
            depth = brackets = links = commas = 0
        elif sign == ",":
            commas += 1
        elif sign in ")]}":
            depth = max(0, depth - 1)
        elif sign[0] not in '"/':
            links += 1
            depth += sign in "([{"
            brackets = max(brackets, depth)
    if rest := _COMMENTS.sub("", cedar[begin:]).strip():
        yield _Piece(rest, brackets, links, commas)


def _read(piece: _Piece, path: str) -> ParsedPolicies:
    """One policy, or why there is none."""
    if problem := _too_much(piece, path):
        return ParsedPolicies(policies=(), problems=(problem,))
    try:
        tree = cedarpy.policies_to_pst(piece.text)
        written = orjson.loads(cedarpy.policies_to_json_str(piece.text))["staticPolicies"]
    except ValueError as error:
        problem = _error(path, "cedar_malformed", str(error).removeprefix("cedarpy: "))
        return ParsedPolicies(policies=(), problems=(problem,))
    if len(tree.static_policies) != 1 or tree.templates:
        problem = _error(path, "template_unsupported", "Templates (?principal, ?resource) have no use here.")
        return ParsedPolicies(policies=(), problems=(problem,))
    ((key, node),) = tree.static_policies.items()
    policy = _policy(node, piece.text, written[key])
    return ParsedPolicies(policies=(policy,), problems=tuple(_annotation_problems(node, path)))


def _too_much(piece: _Piece, path: str) -> Problem | None:
    if piece.brackets > BRACKETS_MAX or piece.links > LINKS_MAX:
        text = f"A policy nests at most {BRACKETS_MAX} brackets, and has {LINKS_MAX} operators, dots and brackets."
        return _error(path, "policy_too_deep", text)
    if len(piece.text) > POLICY_LENGTH_MAX or piece.commas > COMMAS_MAX:
        text = f"A policy has at most {POLICY_LENGTH_MAX} characters and {COMMAS_MAX} commas: use a role or a group."
        return _error(path, "policy_too_large", text)
    return None


def _annotation_problems(node: pst.Template, path: str) -> Iterator[Problem]:
    for name in sorted(node.annotations.keys() - set(ANNOTATIONS)):
        text = f"@{name} means nothing here; there are {', '.join(f'@{each}' for each in ANNOTATIONS)}."
        yield _error(path, "annotation_unknown", text)
    said = node.annotations.get(ID, "unnamed")
    if len(said) > ID_LENGTH_MAX or not ID_PATTERN.fullmatch(said):
        text = f"@id is a name of letters, digits, dots, dashes and underscores, at most {ID_LENGTH_MAX}."
        yield _error(path, "id_malformed", text)
    if APPROVAL in node.annotations and node.effect == "forbid":
        yield _error(path, "approval_of_forbid", "A forbid lets nothing pass, so nothing can be approved.")


def _name_problems(policies: list[Policy]) -> Iterator[Problem]:
    seen: set[str] = set()
    for position, policy in enumerate(policies):
        if policy.name in seen:
            text = f"{policy.name!r} is there before; names tell policies apart in decisions."
            yield _error(f"policies[{position}]", "id_duplicate", text)
        seen.add(policy.name)


def _policy(node: pst.Template, text: str, written: dict[str, Any]) -> Policy:
    said = {name: part for name, part in written.items() if name != "annotations"}
    # Not RFC 8785: its integers have 64 bits.
    digest = sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return Policy(
        name=node.annotations.get(ID) or f"unnamed-{digest[:12]}",
        digest=digest,
        approval=node.annotations.get(APPROVAL, ""),
        text=text,
        node=node,
        reads=_reads(node),
    )


def _reads(node: pst.Template) -> Reads:
    reads = Reads(identity=_names_somebody(node.principal))
    for clause in node.clauses:
        _look(clause.expr, reads)
    return reads


def _names_somebody(constraint: pst.PrincipalOrResourceConstraint) -> bool:
    entity = getattr(constraint, "entity", None)
    return isinstance(entity, pst.EntityUid) and str(entity.type) not in _SHARED_TYPES


def _look(expr: pst.Expr, reads: Reads) -> None:
    """At one expression and all below it."""
    match expr:
        case pst.GetAttr():
            base, path = _chain(expr)
            _look_at_member(base, path, reads, whole=True)
        case pst.HasAttr():
            base, path = _chain(expr.base)
            _look_at_member(base, [*path, *expr.attrs], reads, whole=False)
        case pst.BinaryOp(op="in", left=pst.Var(name="principal"), right=right) if _is_shared(right):
            pass
        case pst.Is(base=pst.Var(name="principal"), in_expr=inner) if inner is None or _is_shared(inner):
            pass
        case pst.Var(name="principal"):
            reads.identity = True
        case pst.Var(name="context"):
            reads.members.update(CONTEXT)
            reads.input.whole = True
        case _:
            for below in _below(expr):
                _look(below, reads)


def _look_at_member(base: pst.Expr, path: list[str], reads: Reads, *, whole: bool) -> None:
    match base:
        case pst.Var(name="context"):
            reads.members.add(path[0])
            if path[0] == "input":
                reads.input.add(path[1:], whole=whole)
        case pst.Var(name="principal"):
            # Its attributes are the same for all callers that share a decision.
            pass
        case _:
            _look(base, reads)


def _chain(expr: pst.Expr) -> tuple[pst.Expr, list[str]]:
    path: list[str] = []
    while isinstance(expr, pst.GetAttr):
        path.append(expr.attr)
        expr = expr.base
    return expr, path[::-1]


def _is_shared(expr: pst.Expr) -> bool:
    """Roles or groups, written out."""
    if isinstance(expr, pst.Set):
        return all(_is_shared(element) for element in expr.elements)
    return isinstance(expr, pst.EntityLit) and str(expr.value.type) in _SHARED_TYPES


def _below(expr: Any) -> Iterator[pst.Expr]:
    """Expressions directly below one."""
    for member in fields(expr):
        value = getattr(expr, member.name)
        if isinstance(value, pst.FrozenMap):
            yield from value.values()
        elif isinstance(value, tuple):
            yield from (cast("pst.Expr", each) for each in value if is_dataclass(each))
        elif is_dataclass(value):
            yield cast("pst.Expr", value)


def _error(path: str, code: str, message: str) -> Problem:
    return Problem(path=path, code=code, message=message[:MESSAGE_LENGTH_MAX])
