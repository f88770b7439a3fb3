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
    parts.fields["components"] = [_component(component, parts) for component in components]
    parts.fields["include"] = [_include(part, parts, spec) for part in include]
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
    undecorated = original(function)
    module, name = getattr(undecorated, "__module__", None), getattr(undecorated, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name or undecorated is not function:
        return None
    return f"{module}:{name}"


def _component(entry: object, parts: ComposedParts) -> dict[str, Any]:
    if isinstance(entry, ComponentEntry):
        fields = entry.model_dump(exclude_unset=True)
    elif isinstance(entry, Mapping):
        fields = dict(entry)
    elif callable(entry):
        fields = {"use": entry}
    else:
        raise SpecError(
            f"components has {entry!r:.60}; expected a decorated function, or a dict with a component's keys"
        )
    function = fields.get("use")
    if callable(function):
        undecorated = original(function)
        fields = {
            "name": getattr(undecorated, "__name__", type(undecorated).__name__),
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


def _include(entry: Mapping[str, Any], parts: ComposedParts, spec: type) -> dict[str, Any]:
    fields = dict(entry)
    included = fields.get("spec")
    if isinstance(included, spec):
        fields.setdefault("as", included.name)  # type: ignore[attr-defined] # a RewardSpec
        parts.included[str(fields["as"])] = included
        fields["spec"] = str(included.path or included.name)  # type: ignore[attr-defined] # a RewardSpec
    return fields
