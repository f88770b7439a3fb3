"""Documents made of functions and specs in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mttp.errors import SpecError
from mttp.rewards.callables import original
from mttp.rewards.decorators import mark_of
from mttp.rewards.document import ComponentEntry, SpecDocument

__all__ = ["COMBINE", "ComposedParts", "described", "parts_of"]


COMBINE: Final = "combine()"
"""What stands for the function that combines where the others have a component's name."""


@dataclass(frozen=True, slots=True)
class ComposedParts:
    """What was given, apart: the document's side, and the objects that it stands for."""

    fields: dict[str, Any]
    """`components`, `include` and `combine` as a file says them."""
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """Functions by the name of their component; that of the combination under `COMBINE`."""
    included: dict[str, Any] = field(default_factory=dict)
    """Specs by their names here."""


def parts_of(
    components: Iterable[object], include: Iterable[Mapping[str, Any]], combine: Any, spec: type
) -> ComposedParts:
    """The parts of what was given; included objects of the type `spec` are specs."""
    parts = ComposedParts({})
    parts.fields["components"] = [_component(one, parts) for one in components]
    parts.fields["include"] = [_include(one, parts, spec) for one in include]
    if callable(combine):
        parts.functions[COMBINE] = combine
        parts.fields["combine"] = {"use": target_of(combine)}
    return parts


def described(document: SpecDocument) -> dict[str, Any]:
    """A document as plain data, without what is left to defaults."""
    said = document.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    return {"mttp": document.mttp, **said}


def target_of(function: Callable[..., Any]) -> str | None:
    """`module:function` where it can be imported so; None for what has no such name."""
    found = original(function)
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name or found is not function:
        return None
    return f"{module}:{name}"


def _component(given: object, parts: ComposedParts) -> dict[str, Any]:
    if isinstance(given, ComponentEntry):
        said = given.model_dump(exclude_unset=True)
    elif isinstance(given, Mapping):
        said = dict(given)
    elif callable(given):
        said = {"use": given}
    else:
        raise SpecError(f"a component is a function or a mapping, not {given!r:.60}")
    function = said.get("use")
    if callable(function):
        found = original(function)
        said = {
            "name": getattr(found, "__name__", type(found).__name__),
            **_declared(function),
            **said,
            "use": target_of(function),
        }
        parts.functions[str(said["name"])] = function
        if said["use"] is None:
            del said["use"]
    return said


def _declared(function: Callable[..., Any]) -> dict[str, Any]:
    """What a decorated function says of itself."""
    mark = mark_of(function)
    return {} if mark is None else {"kind": mark.kind, **mark.options}


def _include(given: Mapping[str, Any], parts: ComposedParts, spec: type) -> dict[str, Any]:
    said = dict(given)
    found = said.get("spec")
    if isinstance(found, spec):
        said.setdefault("as", found.name)  # type: ignore[attr-defined] # it is a RewardSpec
        parts.included[str(said["as"])] = found
        said["spec"] = str(found.path or found.name)  # type: ignore[attr-defined] # likewise
    return said
