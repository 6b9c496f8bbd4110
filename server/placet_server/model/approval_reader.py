"""From the text of approval terms to terms: the grammar stands in `approval_text`."""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from placet_server.model.approval import Escalation, Evidence, Quorum, Rule, Selector, Terms, all_of, any_of

TEXT_LENGTH_MAX = 64 * 1024

_DEPTH_MAX = 16
_TOKEN = re.compile(r'\s*(?:([^\s"(),;=|]+)|([(),;=|])|("(?:[^"\\\x00-\x1f]|\\.)*"))', re.DOTALL)
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_SPAN = re.compile(r"([1-9][0-9]{0,9})([smhd])")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_KINDS = {"role": "roles", "group": "groups", "user": "subjects"}
_OPTIONS = ("ttl", "evidence", "login", "login_age", "escalate", "requester", "material")


class TermsRefused(ValueError):
    """`position`: where in the text, from 0."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        before = text[max(0, position - 24) : position].lstrip()
        place = f"after {before!r}" if before else "at the beginning"
        super().__init__(f"{problem} ({place}, at {position})")
        self.problem = problem
        self.position = position


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class Reader:
    """One text, read from left to right. `kind` of a token is "word", "sign", "string" or, at the end, "end"."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > TEXT_LENGTH_MAX:
            self._refuse(f"longer than {TEXT_LENGTH_MAX} characters", 0)
        self._tokens = list(self._read_tokens())
        self._next = 0

    def _read_tokens(self) -> Iterable[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                self._refuse("a string that does not end, or has a control character", at)
            index = found.lastindex or 0
            if index == 1 and not found[1].isprintable():
                self._refuse("a word with a character that is not printable", found.start(1))
            yield _Token(("", "word", "sign", "string")[index], found[index], found.start(index))
            at = found.end()
        yield _Token("end", "", end)

    def terms(self) -> Terms:
        rule = self._rule(0)
        options: dict[str, Any] = {}
        while not self._is_at("end", ""):
            self._sign(";", "say 'and', 'or', ';' before an option, or end here")
            self._option(options)
        return Terms(rule=rule, **options)

    def lone_rule(self) -> Rule:
        rule = self._rule(0)
        self._end()
        return rule

    def lone_selector(self) -> Selector:
        who = self._who()
        self._end()
        return who

    def lone_span(self) -> int:
        span = self._span()
        self._end()
        return span

    def lone_escalation(self) -> Escalation:
        escalation = self._escalation()
        self._end()
        return escalation

    def _rule(self, depth: int) -> Rule:
        parts = [self._part(depth)]
        word = self._peek.text if self._peek.kind == "word" else ""
        if word not in ("and", "or"):
            return parts[0]
        while self._peek.kind == "word" and self._peek.text in ("and", "or"):
            if self._peek.text != word:
                self._refuse("'and' beside 'or': put one of them into parentheses", self._peek.position)
            self._take()
            parts.append(self._part(depth))
        return all_of(parts) if word == "and" else any_of(parts)

    def _part(self, depth: int) -> Rule:
        if self._is_at("sign", "("):
            opened = self._take()
            if depth >= _DEPTH_MAX:
                self._refuse(f"more than {_DEPTH_MAX} parentheses deep", opened.position)
            rule = self._rule(depth + 1)
            self._sign(")", "say 'and', 'or' or ')'")
            return rule
        count = self._take()
        if count.kind != "word" or not _COUNT.fullmatch(count.text):
            self._refuse("say how many of whom, as in '2 of role:finance'", count.position)
        of = self._take()
        if (of.kind, of.text) != ("word", "of"):
            self._refuse("say 'of' and whom, as in '2 of role:finance'", of.position)
        return Quorum(int(count.text), self._who())

    def _who(self) -> Selector:
        names: dict[str, set[str]] = {member: set() for member in _KINDS.values()}
        while True:
            token = self._take()
            kind, colon, rest = token.text.partition(":") if token.kind == "word" else ("", "", "")
            if not colon or kind not in _KINDS:
                self._refuse("whom is role:…, group:… or user:…, with commas between several", token.position)
            names[_KINDS[kind]].add(rest or self._string("a name after the colon"))
            if not self._is_at("sign", ","):
                return Selector(**{member: frozenset(found) for member, found in names.items()})
            self._take()

    def _option(self, options: dict[str, Any]) -> None:
        name = self._take()
        if name.kind != "word" or name.text not in _OPTIONS:
            self._refuse(f"an option is one of {', '.join(_OPTIONS)}", name.position)
        self._sign("=", f"say {name.text}=…")
        member, value = self._option_value(name.text)
        if member in options:
            self._refuse(f"{name.text} is said twice", name.position)
        options[member] = value

    def _option_value(self, name: str) -> tuple[str, Any]:
        if name == "ttl":
            return "ttl_seconds", self._span()
        if name == "login_age":
            return "login_age_seconds_max", self._span()
        if name == "evidence":
            return "evidence", frozenset(self._evidence(v) for v in self._values(","))
        if name == "material":
            return "material_paths", frozenset(self._checked(v) for v in self._values(","))
        if name == "login":
            is_empty = self._is_at("end", "") or self._is_at("sign", ";")
            strengths = [] if is_empty else self._values("|")
            return "login_strengths", frozenset(self._checked(v) for v in strengths)
        if name == "escalate":
            return "escalation", self._escalation()
        may = self._take()
        if (may.kind, may.text) != ("word", "may"):
            self._refuse("say requester=may, or leave it out", may.position)
        return "requester_may_approve", True

    def _escalation(self) -> Escalation:
        to = self._who()
        after = self._take()
        if (after.kind, after.text) != ("word", "after"):
            self._refuse("say 'after' and a span, as in 'role:head after 1h'", after.position)
        return Escalation(after_seconds=self._span(), to=to)

    def _values(self, separator: str) -> list[_Token]:
        values = [self._take()]
        while self._is_at("sign", separator):
            self._take()
            values.append(self._take())
        return values

    def _checked(self, token: _Token) -> str:
        if token.kind == "string":
            return self._unquoted(token)
        if token.kind != "word":
            self._refuse("a word or a string in double quotes belongs here", token.position)
        return token.text

    def _evidence(self, token: _Token) -> Evidence:
        try:
            return Evidence(token.text.upper() if token.text.islower() else "")
        except ValueError:
            known = ", ".join(e.value.lower() for e in Evidence)
            self._refuse(f"evidence is {known}, with commas between several", token.position)

    def _span(self) -> int:
        token = self._take()
        found = _SPAN.fullmatch(token.text) if token.kind == "word" else None
        if found is None:
            self._refuse("a span is a number with s, m, h or d, as in 4h", token.position)
        return int(found[1]) * _SECONDS[found[2]]

    def _string(self, what: str) -> str:
        token = self._take()
        if token.kind != "string":
            self._refuse(f"{what} belongs here", token.position)
        return self._unquoted(token)

    def _unquoted(self, token: _Token) -> str:
        try:
            value = json.loads(token.text)
        except ValueError:
            self._refuse("not a string as JSON has them", token.position)
        if not value or not value.isprintable():
            self._refuse("a string that is empty, or not of printable characters", token.position)
        return str(value)

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _is_at(self, kind: str, text: str) -> bool:
        return (self._peek.kind, self._peek.text) == (kind, text)

    def _take(self) -> _Token:
        token = self._peek
        # The end is never passed: whoever asks for more is told of it again.
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _sign(self, sign: str, problem: str) -> None:
        token = self._take()
        if (token.kind, token.text) != ("sign", sign):
            self._refuse(problem, token.position)

    def _end(self) -> None:
        if not self._is_at("end", ""):
            self._refuse("the text ends here", self._peek.position)

    def _refuse(self, problem: str, position: int) -> NoReturn:
        raise TermsRefused(problem, self._text, position)
