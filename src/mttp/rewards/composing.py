"""Conversion of functions and specs given in Python to the keys of a spec document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mttp.errors import SpecError
from mttp.rewards.callables import original
from mttp.rewards.decorators import mark_of
from mttp.rewards.document import ComponentEntry, SpecDocument

COMBINE: Final = "combine()"
"""The name of the combining function among functions that are keyed by component name."""


@dataclass(frozen=True, slots=True)
class ComposedParts:
    """The document's keys and the Python objects that they refer to."""

    fields: dict[str, Any]
    """`components`, `include` and `combine` as in a file."""
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """Functions by component name; the combining function is under `COMBINE`."""
    included: dict[str, Any] = field(default_factory=dict)
    """Included specs by their names in this spec."""


def parts_of(
    components: Iterable[object], include: Iterable[Mapping[str, Any]], combine: Any, spec: type
) -> ComposedParts:
    """Split the arguments of a spec into document keys and objects; `spec` is the type of included specs."""
    parts = ComposedParts({})
    parts.fields["components"] = [_component(one, parts) for one in components]
    parts.fields["include"] = [_include(one, parts, spec) for one in include]
    if callable(combine):
        parts.functions[COMBINE] = combine
        parts.fields["combine"] = {"use": target_of(combine)}
    return parts


def described(document: SpecDocument) -> dict[str, Any]:
    """Return a document as plain data, without defaults."""
    fields = document.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    return {"mttp": document.mttp, **fields}


def target_of(function: Callable[..., Any]) -> str | None:
    """Return the `module:function` that imports a function, or None."""
    found = original(function)
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name or found is not function:
        return None
    return f"{module}:{name}"


def _component(given: object, parts: ComposedParts) -> dict[str, Any]:
    if isinstance(given, ComponentEntry):
        fields = given.model_dump(exclude_unset=True)
    elif isinstance(given, Mapping):
        fields = dict(given)
    elif callable(given):
        fields = {"use": given}
    else:
        raise SpecError(
            f"components has {given!r:.60}; expected a decorated function, or a dict with a component's keys"
        )
    function = fields.get("use")
    if callable(function):
        found = original(function)
        fields = {
            "name": getattr(found, "__name__", type(found).__name__),
            **_declared(function),
            **fields,
            "use": target_of(function),
        }
        parts.functions[str(fields["name"])] = function
        if fields["use"] is None:
            del fields["use"]
    return fields


def _declared(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the kind and options from a function's decorator."""
    mark = mark_of(function)
    return {} if mark is None else {"kind": mark.kind, **mark.options}


def _include(given: Mapping[str, Any], parts: ComposedParts, spec: type) -> dict[str, Any]:
    fields = dict(given)
    found = fields.get("spec")
    if isinstance(found, spec):
        fields.setdefault("as", found.name)  # type: ignore[attr-defined] # a RewardSpec
        parts.included[str(fields["as"])] = found
        fields["spec"] = str(found.path or found.name)  # type: ignore[attr-defined] # a RewardSpec
    return fields
