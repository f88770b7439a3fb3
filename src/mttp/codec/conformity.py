"""
Type checks on reading: values of the registry's types, nested at most `MAX_DEPTH` deep.

Other values are removed and reported. Integers are accepted as doubles, as JSON writers often omit `.0`.
Values of other libraries' spans are converted where that loses nothing: `"12"` and `12.0` are integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from mttp.codec import columns, left_out, other_calls
from mttp.codec.translating import Translator
from mttp.model.chat import from_text
from mttp.model.declarations import DOCUMENTS
from mttp.model.nesting import MAX_DEPTH, is_deep, is_deep_json
from mttp.model.spans import Scope, SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv.registry import INT64, NO_SCALAR, SCALARS, type_of, wanted

__all__ = ["Conformity", "Misfit"]

_OWN = "mttp."
_REMOVED: Final = object()
"""Marks a value that is removed."""
_DOCUMENTS = DOCUMENTS | {a.SPEC_DOCUMENTS}
"""Text attributes with JSON, which readers parse."""
_OR_TEXT = frozenset({a.GEN_AI_RESPONSE_FINISH_REASONS})
"""Text lists that some libraries write as one text."""


class Misfit(NamedTuple):
    """A value that is removed."""

    kind: Literal["wrong_type", "deep_value"]
    """The reason."""
    trace_id: str
    """The trace id of the span, or of the first span of a scope."""
    attribute: str
    """The attribute."""
    reason: str
    """The reason with span and attribute, for people."""

    @property
    def message(self) -> str:
        """The reason, and what becomes of the value."""
        return f"{self.reason}: it is left out"


_INSPECTED = _DOCUMENTS | {a.STEPS_COUNT, a.OBSERVATION_DTYPE, a.ACTION_DTYPE}
_INSPECTED |= {a.EPISODE_FINAL_OBSERVATION_DTYPE, a.ANNOTATION_VALUE}
"""Scalars that can be invalid although their type is right."""
_SHAPES: dict[tuple[Any, ...], tuple[Sequence[str], Sequence[str]]] = {}
"""A cache by attributes and their types: the keys to inspect, and the keys of integers."""
_MAX_SHAPES = 4096
_INT64_MIN, _INT64_MAX = INT64[0], INT64[-1]
_OF_KINDS = {
    "score": "double",
    "advantage": "double",
    "outcome": "string",
    "label": "string",
    "comment": "string",
}
"""The type of an annotation's value by its kind."""


class Conformity:
    """
    Checks spans one after another and removes values that do not conform.

    Attributes of earlier versions of the convention get their current names first, and numbers that a
    transport left out as NaN or infinite are there again.
    With `as_written`, values of a wrong type are reported but kept, and so are names.
    """

    def __init__(self, *, as_written: bool = False) -> None:
        self._as_written = as_written
        self._translate = Translator()
        self._scope = self._conforming = Scope()

    def examine(self, record: SpanRecord) -> tuple[SpanRecord, Sequence[Misfit]]:
        """Return the conforming span, and the removed values."""
        if not self._as_written:
            record = self._translate(record)
            record = other_calls.with_conventions(record)
            if a.OMISSIONS in record.attributes:
                record = replace(record, attributes=left_out.restored(record.attributes))
        suspects = _suspects(record.attributes)
        if not suspects and not record.events and not record.links and record.scope is self._scope:
            is_conforming = self._conforming is self._scope
            return record if is_conforming else replace(record, scope=self._conforming), ()
        misfits: list[Misfit] = []
        changes = self._changes(record, suspects, misfits)
        return (replace(record, **changes) if changes else record), misfits

    def _changes(self, record: SpanRecord, suspects: Sequence[str], misfits: list[Misfit]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if suspects:
            attributes, wrong = _examined(record.attributes, suspects)
            misfits += (_misfit(problem, _where(record), record.trace_id) for problem in wrong)
            if self._as_written:
                attributes = _as_written(record.attributes, wrong)
            if attributes is not record.attributes:
                changes["attributes"] = attributes
        for name in ("events", "links"):
            parts = getattr(record, name)
            if not parts:
                continue
            conforming = [
                _part(part, f"{name[:-1]} {number} of {_where(record)}", record.trace_id, misfits)
                for number, part in enumerate(parts, start=1)
            ]
            if any(part is not other for part, other in zip(conforming, parts, strict=True)):
                changes[name] = tuple(conforming)
        if record.scope is not self._scope:
            self._scope, self._conforming = record.scope, _scope(record, misfits)
        if self._conforming is not self._scope:
            changes["scope"] = self._conforming
        return changes


def _where(record: SpanRecord) -> str:
    return f"span {record.name!r:.80} ({record.span_id})"


def _suspects(attributes: Mapping[str, Any]) -> Sequence[str]:
    """Return the attributes to inspect; the others are valid scalars of their types."""
    shape = (*attributes, *map(type, attributes.values()))
    inspected = _SHAPES.get(shape)
    if inspected is None:
        if len(_SHAPES) >= _MAX_SHAPES:
            _SHAPES.clear()
        fits = {key: type(value) for key, value in attributes.items() if _is_plain(key, type(value))}
        inspected = _SHAPES[shape] = (
            [key for key in attributes if key not in fits],
            [key for key, kind in fits.items() if kind is int],
        )
    suspects, integers = inspected
    for key in integers:
        if not _INT64_MIN <= attributes[key] <= _INT64_MAX:
            return [*suspects, *(key for key in integers if attributes[key] not in INT64)]
    return suspects


def _is_plain(key: str, kind: type) -> bool:
    """Return whether a scalar of that type is valid regardless of its value and other attributes."""
    if key in _INSPECTED or key.startswith(columns.COLUMN):
        return False
    expected = wanted(key) or "any"
    return kind in _KINDS if expected == "any" else kind is SCALARS.get(expected)


_KINDS = frozenset(SCALARS.values())


class _Wrong(NamedTuple):
    key: str
    kind: Literal["wrong_type", "deep_value"]
    message: str


_LONGEST_NUMBER = 40
"""Characters of a text that may be a number."""
_FLAT = frozenset({float, str, bool})
"""Types of elements that are valid in an attribute of any type."""


def _examined(
    attributes: Mapping[str, Any], suspects: Sequence[str]
) -> tuple[Mapping[str, Any], list[_Wrong]]:
    """Return the conforming attributes, the given mapping if all conform, and the problems of the others."""
    wrong: list[_Wrong] = []
    fitted: dict[str, Any] = {}
    is_of_others = a.RUN_ID not in attributes
    is_typed = not is_of_others or a.GEN_AI_OPERATION_NAME in attributes
    for key in suspects:
        value = attributes[key]
        expected = _expected(key, attributes) if is_typed or key.startswith(_OWN) else None
        if type(value) is list and expected == "any" and _FLAT.issuperset(map(type, value)):
            continue
        if _is_deep(key, value):
            wrong.append(_Wrong(key, "deep_value", f"is nested more than {MAX_DEPTH} deep"))
            continue
        is_packed = isinstance(value, bytes) and key.startswith(columns.COLUMN)
        converted = value if is_packed else _fitted(expected, value)
        if converted is _REMOVED and is_of_others and not key.startswith(_OWN):
            converted = _converted(expected, value)
        if converted is _REMOVED and not (key in _OR_TEXT and type(value) is str):
            wrong.append(
                _Wrong(key, "wrong_type", f"is {_described(value)}, expected {expected or 'an int'}")
            )
        elif converted is not value and converted is not _REMOVED:
            fitted[key] = converted
    if wrong or fitted:
        removed = {problem.key for problem in wrong}
        attributes = {key: fitted.get(key, value) for key, value in attributes.items() if key not in removed}
    if any(key in attributes for key in _ARRAYS):
        attributes = _consistent(attributes, wrong)
    return attributes, wrong


_ARRAYS = (a.STEPS_COUNT, a.OBSERVATION_DTYPE, a.ACTION_DTYPE, a.EPISODE_FINAL_OBSERVATION_DTYPE)


def _consistent(attributes: Mapping[str, Any], wrong: list[_Wrong]) -> Mapping[str, Any]:
    """Return the attributes without arrays and columns that contradict their description."""
    unfit = list(columns.arrays(attributes))
    if not unfit:
        return attributes
    wrong += (_Wrong(key, "wrong_type", f"is {what}, expected {expected}") for key, what, expected in unfit)
    removed = {attribute.key for attribute in unfit}
    return {key: value for key, value in attributes.items() if key not in removed}


def _as_written(attributes: Mapping[str, Any], wrong: Sequence[_Wrong]) -> Mapping[str, Any]:
    """Return the attributes without values that are too deep or were not parsed."""
    removed = {item.key for item in wrong if item.kind == "deep_value" or attributes[item.key] is NO_SCALAR}
    return {key: value for key, value in attributes.items() if key not in removed} if removed else attributes


def _expected(key: str, attributes: Mapping[str, Any]) -> str | None:
    """Return the expected type of a value, which for annotations and columns depends on other keys."""
    if key == a.ANNOTATION_VALUE:
        kind = attributes.get(a.ANNOTATION_KIND)
        return _OF_KINDS.get(kind, "any") if isinstance(kind, str) else "any"
    if key.startswith(columns.COLUMN):
        of_steps = wanted(key[len(columns.COLUMN) :])
        return None if of_steps is None else f"{of_steps}[]"
    return wanted(key)


def _is_deep(key: str, value: Any) -> bool:
    if isinstance(value, str):
        return key in _DOCUMENTS and is_deep_json(value)
    if key == a.SPEC_DOCUMENTS and isinstance(value, (list, tuple)):
        return any(isinstance(document, str) and is_deep_json(document) for document in value)
    return isinstance(value, (list, tuple, Mapping)) and is_deep(value)


def _fitted(expected: str | None, value: Any) -> Any:
    """Return the value converted to the type; `_REMOVED` if it can't be."""
    if expected is None or expected == "any":
        return _REMOVED if value is NO_SCALAR or _has_huge([value]) else value
    if expected in SCALARS:
        return _scalar(expected, value)
    if hasattr(value, "dtype"):
        return value if _is_of_dtype(value, expected) else _REMOVED
    return _listed(expected.removesuffix("[]"), value)


def _scalar(expected: str, value: Any) -> Any:
    kind = SCALARS[expected]
    if kind is float and type(value) is int and value in INT64:
        return float(value)
    if kind is int and (isinstance(value, bool) or value is NO_SCALAR or not _is_int64(value)):
        return _REMOVED
    return value if isinstance(value, kind) else _REMOVED


def _converted(expected: str | None, value: Any) -> Any:
    """Return a value of another library converted to the type; `_REMOVED` if it can't be."""
    if expected is None or value is NO_SCALAR:
        return _REMOVED
    if expected.endswith("[]"):
        items = from_text(value)
        element = expected.removesuffix("[]")
        typed = [_element(element, item) for item in (items if isinstance(items, (list, tuple)) else [items])]
        return _REMOVED if any(item is _REMOVED for item in typed) else typed
    if expected == "string":
        return str(value) if type(value) in (int, float) else _REMOVED
    if isinstance(value, str) and expected in ("int", "double"):
        value = _number(value)
    if type(value) is float and expected == "int" and value.is_integer():
        value = int(value)
    return _fitted(expected, value)


def _element(expected: str, value: Any) -> Any:
    fitted = _fitted(expected, value)
    return _converted(expected, value) if fitted is _REMOVED else fitted


def _number(text: str) -> int | float | None:
    """Return the finite number in a text; None if there is none."""
    if len(text) > _LONGEST_NUMBER or not text.isascii() or "_" in text:
        return None
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return number if math.isfinite(number) else None
    return None


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and _INT64_MIN <= value <= _INT64_MAX


def _listed(expected: str, value: Any) -> Any:
    """Return the list with elements of the type, converting integers to doubles; else `_REMOVED`."""
    if not isinstance(value, (list, tuple)):
        return _REMOVED
    if expected not in SCALARS:
        return value if all(_fitted(expected, item) is not _REMOVED for item in value) else _REMOVED
    kinds = set(map(type, value))
    if kinds == {int} and expected == "int":
        return value if min(value) >= _INT64_MIN and max(value) <= _INT64_MAX else _REMOVED
    if kinds <= {SCALARS[expected]}:
        return value
    doubles = [_scalar(expected, item) for item in value]
    if any(item is _REMOVED for item in doubles):
        return _REMOVED
    return doubles if expected == "double" else value


_OF_DTYPES = {"int[]": "iu", "double[]": "fiu", "boolean[]": "b", "any[]": "biuf"}


def _is_of_dtype(value: Any, expected: str) -> bool:
    """Return whether a numpy array has elements of the type; an empty one does."""
    return value.dtype.kind in _OF_DTYPES.get(expected, "") or not value.size


def _has_huge(values: Iterable[Any]) -> bool:
    """Return whether values contain integers beyond 64 bits; the values must not be deep."""
    for value in values:
        if type(value) is int:
            if not _INT64_MIN <= value <= _INT64_MAX:
                return True
        elif type(value) in _FLAT or not isinstance(value, _AROUND):
            continue
        elif _has_huge(value.values() if isinstance(value, Mapping) else value):
            return True
    return False


def _described(value: Any) -> str:
    if value is NO_SCALAR:
        return "not a scalar"
    if type(value) is int and value not in INT64:
        return "an int beyond 64 bits"
    return type_of(value)


def _misfit(wrong: _Wrong, where: str, trace_id: str) -> Misfit:
    return Misfit(wrong.kind, trace_id, wrong.key, f"{wrong.key} of {where} {wrong.message}")


def _part(part: Any, where: str, trace_id: str, misfits: list[Misfit]) -> Any:
    """Return an event or a link without values that are nested too deeply."""
    attributes = _without_deep(part.attributes, where, trace_id, misfits)
    return part if attributes is part.attributes else replace(part, attributes=attributes)


def _scope(record: SpanRecord, misfits: list[Misfit]) -> Scope:
    """Return the scope of a span without values that are nested too deeply."""
    scope, where = record.scope, f"the resource of {_where(record)}"
    resource = _without_deep(scope.resource, where, record.trace_id, misfits)
    attributes = _without_deep(
        scope.attributes, where.replace("resource", "scope", 1), record.trace_id, misfits
    )
    is_kept = resource is scope.resource and attributes is scope.attributes
    return scope if is_kept else replace(scope, resource=resource, attributes=attributes)


def _without_deep(
    attributes: Mapping[str, Any], where: str, trace_id: str, misfits: list[Misfit]
) -> Mapping[str, Any]:
    deep = [key for key, value in attributes.items() if isinstance(value, _AROUND) and is_deep(value)]
    for key in deep:
        wrong = _Wrong(key, "deep_value", f"is nested more than {MAX_DEPTH} deep")
        misfits.append(_misfit(wrong, where, trace_id))
    return {key: value for key, value in attributes.items() if key not in deep} if deep else attributes


_AROUND = (list, tuple, Mapping)
