"""
Spans as readers get them: every value of the type that the registry has for its attribute, and none too deep.

A value of another type is left out, and named. An integer is a double, too, as many writers of JSON have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from mttp.codec import columns
from mttp.model.nesting import MAX_DEPTH, is_deep, is_deep_json
from mttp.model.spans import Scope, SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv.registry import INT64, NO_SCALAR, SCALARS, type_of, wanted

__all__ = ["Conformity", "Misfit", "is_conforming"]

_OWN = "mttp."
_NOTHING: Final = object()
"""Stands for a value that is left out."""
_DOCUMENTS = frozenset(
    {a.ENV_KWARGS, a.ENV_SPACES, a.INPUTS_JSON, a.REWARD_EVIDENCE, a.RUN_CONFIG_JSON, a.SPEC_DOCUMENTS}
)
"""Texts that are JSON, which readers give as what it says."""
_OR_TEXT = frozenset({a.GEN_AI_RESPONSE_FINISH_REASONS})
"""Lists of texts that some libraries write as one text."""


class Misfit(NamedTuple):
    """One value that is left out."""

    kind: Literal["wrong_type", "deep_value"]
    """Why."""
    trace_id: str
    """The trace of the span that it is on, or of the first span of its scope."""
    attribute: str
    """Its attribute."""
    message: str
    """What is wrong with it, in a sentence that names span and attribute."""


_LOOKED_INTO = _DOCUMENTS | {a.STEPS_COUNT, a.OBSERVATION_DTYPE, a.ACTION_DTYPE}
_LOOKED_INTO |= {a.EPISODE_FINAL_OBSERVATION_DTYPE, a.ANNOTATION_VALUE}
"""Scalars of which more can be wrong than their type."""
_SHAPES: dict[tuple[Any, ...], tuple[Sequence[str], Sequence[str]]] = {}
"""What to look at of spans that have the same attributes, of the same types: suspects, and integers."""
_MOST_SHAPES = 4096
_LEAST, _MOST = INT64[0], INT64[-1]
_OF_KINDS = {
    "score": "double",
    "advantage": "double",
    "outcome": "string",
    "label": "string",
    "comment": "string",
}
"""The type of what an annotation states, by its kind."""


def is_conforming(attributes: Mapping[str, Any]) -> bool:
    """Whether nothing of a span's attributes is left out."""
    suspects = _suspects(attributes)
    return not suspects or not _examined(attributes, suspects)[1]


class Conformity:
    """
    Looks at spans one after another, and leaves out of each what readers must not get.

    With `as_written` a value of a wrong type stays, and is named all the same.
    """

    def __init__(self, *, as_written: bool = False) -> None:
        self._as_written = as_written
        self._scope = self._conforming = Scope()

    def examine(self, record: SpanRecord) -> tuple[SpanRecord, Sequence[Misfit]]:
        """The span as readers get it, and what was left out of it."""
        suspects = _suspects(record.attributes)
        if not suspects and not record.events and not record.links and record.scope is self._scope:
            return (record if self._conforming is self._scope else self._in_scope(record)), ()
        misfits: list[Misfit] = []
        changes = self._changes(record, suspects, misfits)
        return (replace(record, **changes) if changes else record), misfits

    def _changes(self, record: SpanRecord, suspects: Sequence[str], misfits: list[Misfit]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if suspects:
            found, wrong = _examined(record.attributes, suspects)
            misfits += (_misfit(one, _where(record), record.trace_id) for one in wrong)
            if self._as_written:
                found = _as_written(record.attributes, wrong)
            if found is not record.attributes:
                changes["attributes"] = found
        for name in ("events", "links"):
            parts = getattr(record, name)
            if not parts:
                continue
            kept = [
                _part(one, f"{name[:-1]} {number} of {_where(record)}", record.trace_id, misfits)
                for number, one in enumerate(parts, start=1)
            ]
            if any(one is not other for one, other in zip(kept, parts, strict=True)):
                changes[name] = tuple(kept)
        if record.scope is not self._scope:
            self._scope, self._conforming = record.scope, _scope(record, misfits)
        if self._conforming is not self._scope:
            changes["scope"] = self._conforming
        return changes

    def _in_scope(self, record: SpanRecord) -> SpanRecord:
        return replace(record, scope=self._conforming)


def _where(record: SpanRecord) -> str:
    return f"span {record.name!r:.80} ({record.span_id})"


def _suspects(attributes: Mapping[str, Any]) -> Sequence[str]:
    """Attributes that are no scalars of their types; with the others nothing else can be wrong."""
    shape = (*attributes, *map(type, attributes.values()))
    found = _SHAPES.get(shape)
    if found is None:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        found = _SHAPES[shape] = _of_shape(attributes)
    suspects, integers = found
    for key in integers:
        if not _LEAST <= attributes[key] <= _MOST:
            return [*suspects, *(key for key in integers if attributes[key] not in INT64)]
    return suspects


def _of_shape(attributes: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
    fits = {key: type(value) for key, value in attributes.items() if _is_plain(key, type(value))}
    return [key for key in attributes if key not in fits], [key for key, kind in fits.items() if kind is int]


def _is_plain(key: str, kind: type) -> bool:
    """Whether scalars of that type fit the attribute whatever else the span says."""
    if key in _LOOKED_INTO or key.startswith(columns.COLUMN):
        return False
    expected = wanted(key) or "any"
    return kind in _KINDS if expected == "any" else kind is SCALARS.get(expected)


_KINDS = frozenset(SCALARS.values())


class _Wrong(NamedTuple):
    key: str
    kind: Literal["wrong_type", "deep_value"]
    said: str


_FLAT = frozenset({float, str, bool})
"""Types of elements that are neither deep nor too large for an attribute that may be anything."""


def _examined(
    attributes: Mapping[str, Any], suspects: Sequence[str]
) -> tuple[Mapping[str, Any], list[_Wrong]]:
    """The attributes that conform, the same mapping where all do, and what is wrong with the others."""
    wrong: list[_Wrong] = []
    fitted: dict[str, Any] = {}
    is_ours = a.RUN_ID in attributes or a.GEN_AI_OPERATION_NAME in attributes
    for key in suspects:
        value = attributes[key]
        expected = _expected(key, attributes) if is_ours or key.startswith(_OWN) else None
        if type(value) is list and expected == "any" and _FLAT.issuperset(map(type, value)):
            continue
        if _is_deep(key, value):
            wrong.append(_Wrong(key, "deep_value", f"is nested more than {MAX_DEPTH} deep"))
            continue
        is_packed = isinstance(value, bytes) and key.startswith(columns.COLUMN)
        made = value if is_packed else _fitted(expected, value)
        if made is _NOTHING and not (key in _OR_TEXT and type(value) is str):
            wrong.append(_Wrong(key, "wrong_type", f"is {_said(value)}, expected {expected or 'an int'}"))
        elif made is not value and made is not _NOTHING:
            fitted[key] = made
    if wrong or fitted:
        left = {one.key for one in wrong}
        attributes = {key: fitted.get(key, value) for key, value in attributes.items() if key not in left}
    if any(key in attributes for key in _ARRAYS):
        attributes = _consistent(attributes, wrong)
    return attributes, wrong


_ARRAYS = (a.STEPS_COUNT, a.OBSERVATION_DTYPE, a.ACTION_DTYPE, a.EPISODE_FINAL_OBSERVATION_DTYPE)


def _consistent(attributes: Mapping[str, Any], wrong: list[_Wrong]) -> Mapping[str, Any]:
    """The attributes without arrays and columns that are not what is said of them."""
    unfit = list(columns.arrays(attributes))
    if not unfit:
        return attributes
    wrong += (_Wrong(key, "wrong_type", f"is {found}, expected {expected}") for key, found, expected in unfit)
    left = {one.key for one in unfit}
    return {key: value for key, value in attributes.items() if key not in left}


def _as_written(attributes: Mapping[str, Any], wrong: Sequence[_Wrong]) -> Mapping[str, Any]:
    """The attributes without those that nothing can hold."""
    left = {one.key for one in wrong if one.kind == "deep_value" or attributes[one.key] is NO_SCALAR}
    return {key: value for key, value in attributes.items() if key not in left} if left else attributes


def _expected(key: str, attributes: Mapping[str, Any]) -> str | None:
    """The type that a value should have, for which other attributes may say more than the registry."""
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
        return any(isinstance(one, str) and is_deep_json(one) for one in value)
    return isinstance(value, (list, tuple, Mapping)) and is_deep(value)


def _fitted(expected: str | None, value: Any) -> Any:
    """The value as one of that type, or `_NOTHING` where it is none."""
    if expected is None or expected == "any":
        return _NOTHING if value is NO_SCALAR or _has_huge([value]) else value
    if expected in SCALARS:
        return _scalar(expected, value)
    if hasattr(value, "dtype"):
        return value if _is_of_dtype(value, expected) else _NOTHING
    return _listed(expected.removesuffix("[]"), value)


def _scalar(expected: str, value: Any) -> Any:
    kind = SCALARS[expected]
    if kind is float and type(value) is int and value in INT64:
        return float(value)
    if kind is int and (isinstance(value, bool) or value is NO_SCALAR or not _is_int64(value)):
        return _NOTHING
    return value if isinstance(value, kind) else _NOTHING


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and _LEAST <= value <= _MOST


def _listed(expected: str, value: Any) -> Any:
    """The list with elements of one type, integers among doubles as such."""
    if not isinstance(value, (list, tuple)):
        return _NOTHING
    if expected not in SCALARS:
        return value if all(_fitted(expected, item) is not _NOTHING for item in value) else _NOTHING
    kinds = set(map(type, value))
    if kinds == {int} and expected == "int":
        return value if min(value) >= _LEAST and max(value) <= _MOST else _NOTHING
    if kinds <= {SCALARS[expected]}:
        return value
    found = [_scalar(expected, item) for item in value]
    if any(item is _NOTHING for item in found):
        return _NOTHING
    return found if expected == "double" else value


_OF_DTYPES = {"int[]": "iu", "double[]": "fiu", "boolean[]": "b", "any[]": "biuf"}


def _is_of_dtype(value: Any, expected: str) -> bool:
    """Whether a numpy array has elements of that type; one without any fits."""
    return value.dtype.kind in _OF_DTYPES.get(expected, "") or not value.size


def _has_huge(values: Iterable[Any]) -> bool:
    """Whether there are integers beyond 64 bits in what may be anything, but is not deep."""
    for value in values:
        if type(value) is int:
            if not _LEAST <= value <= _MOST:
                return True
        elif isinstance(value, (list, tuple)):
            if _has_huge(value):
                return True
        elif isinstance(value, Mapping) and _has_huge(value.values()):
            return True
    return False


def _said(value: Any) -> str:
    if value is NO_SCALAR:
        return "no scalar"
    if type(value) is int and value not in INT64:
        return "an int beyond 64 bits"
    return type_of(value)


def _misfit(wrong: _Wrong, where: str, trace_id: str) -> Misfit:
    return Misfit(wrong.kind, trace_id, wrong.key, f"{wrong.key} of {where} {wrong.said}: it is left out")


def _part(part: Any, where: str, trace_id: str, misfits: list[Misfit]) -> Any:
    """An event or a link without what is nested too deeply."""
    kept = _without_deep(part.attributes, where, trace_id, misfits)
    return part if kept is part.attributes else replace(part, attributes=kept)


def _scope(record: SpanRecord, misfits: list[Misfit]) -> Scope:
    """The scope of a span without what is nested too deeply."""
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
