"""What a policy says where it only compares plain values, found out without the engine.

Asking Cedar costs a call of an idle server a tenth of its time, most of it for reading names and values anew; a
comparison costs next to nothing. So conditions over the context, and over attributes of principal and resource, made of
members, texts, whole numbers, decimals, booleans, sets written out or read, comparisons, `has`, `contains`, `!`, `&&`,
`||` and `if`, are made functions once. They answer only what is beyond doubt: whatever Cedar would call an error, and
whatever has another type than the comparison is for, is Unsure, and Cedar is asked. Everything else is not plain to
begin with. That both say the same is proved by asking both (`tests/model/test_policy_plain_differs_from_cedar.py`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cedarpy import pst

# Python's stack is not for policies; deeper ones are Cedar's.
DEPTH_MAX = 40
_DECIMAL = re.compile(r"(-?)([0-9]{1,14})\.([0-9]{1,4})")


class Unsure(Exception):
    """Only Cedar knows."""


class NotPlain(Exception):
    """Only Cedar can know."""


class Facts(NamedTuple):
    """What a condition looks at: attributes, as Cedar's JSON writes values."""

    principal: Mapping[str, Any]
    resource: Mapping[str, Any]
    context: Mapping[str, Any]


Expression = Callable[[Facts], Any]
Condition = Callable[[Facts], bool]


class Decimal(NamedTuple):
    """In ten-thousandths."""

    units: int


def condition_of(node: pst.Template) -> Condition:
    """Whether all clauses of a policy hold; the condition raises Unsure. Raises NotPlain."""
    clauses = [
        (_boolean(_expression(clause.expr, DEPTH_MAX)), isinstance(clause, pst.When))
        for clause in node.clauses
    ]

    def holds(facts: Facts) -> bool:
        return all(clause(facts) is wanted for clause, wanted in clauses)

    return holds


def _expression(expr: pst.Expr, depth: int) -> Expression:
    if depth <= 0:
        raise NotPlain
    match expr:
        case pst.Var(name="context"):
            return lambda facts: facts.context
        case pst.GetAttr(base=pst.Var(name="principal"), attr=name):
            return lambda facts: _member(facts.principal, name)
        case pst.GetAttr(base=pst.Var(name="resource"), attr=name):
            return lambda facts: _member(facts.resource, name)
        case pst.BoolLit(value=value) | pst.LongLit(value=value) | pst.StringLit(value=value):
            return lambda _: value
        case pst.UnaryOp(op="decimal", arg=pst.StringLit(value=text)):
            decimal = _decimal(text)
            return lambda _: decimal
    return _composed(expr, depth - 1)


def _composed(expr: pst.Expr, depth: int) -> Expression:
    match expr:
        case pst.GetAttr(base=below, attr=name):
            base = _expression(below, depth)
            return lambda facts: _member(base(facts), name)
        case pst.HasAttr(base=below, attrs=names):
            return _has(_expression(below, depth), names)
        case pst.UnaryOp(op="not", arg=below):
            arg = _boolean(_expression(below, depth))
            return lambda facts: not arg(facts)
        case pst.BinaryOp(op="and", left=left, right=right):
            first, second = _boolean(_expression(left, depth)), _boolean(_expression(right, depth))
            return lambda facts: first(facts) and second(facts)
        case pst.BinaryOp(op="or", left=left, right=right):
            first, second = _boolean(_expression(left, depth)), _boolean(_expression(right, depth))
            return lambda facts: first(facts) or second(facts)
        case pst.BinaryOp(op=op, left=left, right=right) if op in _COMPARISONS:
            return _compared(op, _expression(left, depth), _expression(right, depth))
        case pst.IfThenElse(cond=cond, then_expr=then, else_expr=otherwise):
            test, yes, no = (
                _boolean(_expression(cond, depth)),
                _expression(then, depth),
                _expression(otherwise, depth),
            )
            return lambda facts: yes(facts) if test(facts) else no(facts)
        case pst.Set(elements=elements):
            made = [_expression(element, depth) for element in elements]
            return lambda facts: [element(facts) for element in made]
    raise NotPlain


def _boolean(expression: Expression) -> Condition:
    def value(facts: Facts) -> bool:
        found = expression(facts)
        if found is True or found is False:
            return bool(found)
        raise Unsure

    return value


def _member(record: Any, name: str) -> Any:
    if type(record) is not dict:
        raise Unsure
    found = record.get(name)
    if found is None:
        raise Unsure
    return _decimal_of(found) if type(found) is dict and "__extn" in found else found


def _has(base: Expression, names: tuple[str, ...]) -> Expression:
    def has(facts: Facts) -> bool:
        found = base(facts)
        for name in names:
            if type(found) is not dict or "__extn" in found:
                raise Unsure
            if name not in found:
                return False
            found = found[name]
        return True

    return has


def _compared(op: str, left: Expression, right: Expression) -> Expression:
    kinds, compare = _COMPARISONS[op]

    def compared(facts: Facts) -> bool:
        one, other = left(facts), right(facts)
        if type(one) not in kinds or (type(one) is not list and type(one) is not type(other)):
            raise Unsure
        return compare(one, other)

    return compared


def _contains(found: list[Any], wanted: Any) -> bool:
    if type(wanted) not in _SCALARS or any(type(element) is not type(wanted) for element in found):
        raise Unsure
    return wanted in found


_SCALARS = frozenset({str, int, bool, Decimal})
_COMPARISONS: dict[str, tuple[frozenset[type], Callable[[Any, Any], bool]]] = {
    "eq": (_SCALARS, operator.eq),
    "not_eq": (_SCALARS, operator.ne),
    "less": (frozenset({int}), operator.lt),
    "less_eq": (frozenset({int}), operator.le),
    "greater": (frozenset({int}), operator.gt),
    "greater_eq": (frozenset({int}), operator.ge),
    "decimal_less_than": (frozenset({Decimal}), operator.lt),
    "decimal_less_eq": (frozenset({Decimal}), operator.le),
    "decimal_greater": (frozenset({Decimal}), operator.gt),
    "decimal_greater_eq": (frozenset({Decimal}), operator.ge),
    "contains": (frozenset({list}), _contains),
}


def _decimal(text: str) -> Decimal:
    """Of one written in a policy. Raises NotPlain."""
    units = _units(text)
    if units is None:
        raise NotPlain
    return Decimal(units)


def _decimal_of(escaped: dict[str, Any]) -> Decimal:
    said = escaped["__extn"]
    units = _units(said["arg"]) if said["fn"] == "decimal" else None
    if units is None:
        raise Unsure
    return Decimal(units)


def _units(text: str) -> int | None:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    units = int(found[2]) * 10_000 + int(found[3].ljust(4, "0"))
    return -units if found[1] else units
