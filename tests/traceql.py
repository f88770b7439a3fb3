"""
The part of TraceQL that our page and dashboards use, over spans in memory.

As Tempo does it, a comparison needs values of one type: an integer never equals a double. Of an array any
element may match.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mttp.model.spans import SpanRecord

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*") | (?P<duration>\d+(?:\.\d+)?(?:ms|s|m)\b)
    | (?P<double>-?\d+\.\d+) | (?P<int>-?\d+)
    | (?P<word>[A-Za-z_][\w.]*) | (?P<sign>&&|\|\||!=|<=|>=|[=<>{}()|,])
    )""",
    re.X,
)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0}
_STATUSES = ("unset", "ok", "error")
_FOLDS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg_over_time": lambda values: sum(values) / len(values),
    "max_over_time": max,
    "rate": len,
}

Condition: TypeAlias = Callable[[SpanRecord], bool]
Key: TypeAlias = tuple[Any, ...]


@dataclass
class Query:
    """A query: a condition on one span, and what is made of the spans that fulfil it."""

    condition: Condition
    compared: list[tuple[str, Any]]
    """The fields that are compared, with the literals."""
    selected: list[str]
    fold: str = ""
    """The name of a metrics function; empty for a search."""
    folded: str = ""
    by: Sequence[str] = ()

    def spans(self, spans: Iterable[SpanRecord]) -> list[SpanRecord]:
        """The spans that are found."""
        return [span for span in spans if self.condition(span)]

    def metrics(self, spans: Iterable[SpanRecord]) -> dict[Key, float]:
        """The values over the whole time, by the values of `by`."""
        groups: defaultdict[Key, list[float]] = defaultdict(list)
        for span in self.spans(spans):
            value = value_of(span, self.folded) if self.folded else 1
            if value is not None:
                groups[tuple(value_of(span, name) for name in self.by)].append(value)
        return {key: _FOLDS[self.fold](values) for key, values in groups.items()}


def value_of(span: SpanRecord, name: str) -> Any:
    """A field of a span: an intrinsic one, or an attribute by `span.NAME`; None without one."""
    if name.startswith("span."):
        return span.attributes.get(name.removeprefix("span."))
    intrinsic = {
        "name": span.name,
        "status": _STATUSES[span.status_code],
        "duration": (span.end_time - span.start_time) / 1e9,
    }
    return intrinsic[name]


def parse(text: str) -> Query:
    """The query; raises ValueError for anything beyond this part of TraceQL."""
    tokens = _Tokens(text)
    tokens.take("{")
    compared: list[tuple[str, Any]] = []
    condition = _any(tokens, compared)
    tokens.take("}")
    query = Query(condition, compared, [])
    while tokens.next == "|":
        tokens.take("|")
        word = tokens.take()
        names = [*_names(tokens)]
        if word == "select":
            query.selected += names
            continue
        if word not in _FOLDS or len(names) > 1:
            raise ValueError(f"{word} of {names} in {text}")
        query.fold, query.folded = word, "".join(names)
        if tokens.next == "by":
            tokens.take("by")
            query.by = [*_names(tokens)]
    if tokens.next:
        raise ValueError(f"{tokens.next!r} is left of {text}")
    return query


class _Tokens:
    def __init__(self, text: str) -> None:
        self._found: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"{text[place:]!r} of {text}")
            self._found.append((str(match.lastgroup), match[0].strip()))
            place = match.end()

    @property
    def next(self) -> str:
        return self._found[0][1] if self._found else ""

    def take(self, expected: str = "") -> str:
        if not self._found or (expected and self.next != expected):
            raise ValueError(f"{self.next!r} is not {expected!r}")
        return self._found.pop(0)[1]

    def literal(self) -> Any:
        kind, text = self._found.pop(0)
        if kind == "duration":
            number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()  # type: ignore[union-attr]
            return float(number) * _SECONDS[unit]
        if text == "nil":
            return None
        made: dict[str, Callable[[str], Any]] = {"text": lambda text: text[1:-1], "double": float, "int": int}
        return made.get(kind, str)(text)


def _names(tokens: _Tokens) -> Iterator[str]:
    tokens.take("(")
    while tokens.next != ")":
        yield tokens.take()
        if tokens.next == ",":
            tokens.take(",")
    tokens.take(")")


def _any(tokens: _Tokens, compared: list[tuple[str, Any]]) -> Condition:
    return _joined(tokens, compared, "||", _all, any)


def _all(tokens: _Tokens, compared: list[tuple[str, Any]]) -> Condition:
    return _joined(tokens, compared, "&&", _one, all)


def _joined(
    tokens: _Tokens,
    compared: list[tuple[str, Any]],
    sign: str,
    part: Callable[[_Tokens, list[tuple[str, Any]]], Condition],
    join: Callable[[Iterable[bool]], bool],
) -> Condition:
    parts = [part(tokens, compared)]
    while tokens.next == sign:
        tokens.take(sign)
        parts.append(part(tokens, compared))
    return lambda span: join(one(span) for one in parts)


def _one(tokens: _Tokens, compared: list[tuple[str, Any]]) -> Condition:
    if tokens.next == "(":
        tokens.take("(")
        inner = _any(tokens, compared)
        tokens.take(")")
        return inner
    name, sign = tokens.take(), tokens.take()
    literal, compare = tokens.literal(), _COMPARISONS[sign]
    compared.append((name, literal))

    def holds(span: SpanRecord) -> bool:
        value = value_of(span, name)
        if literal is None:
            return (value is not None) == (sign == "!=")
        values = value if isinstance(value, (list, tuple)) else [value]
        return any(type(one) is type(literal) and compare(one, literal) for one in values)

    return holds
