"""The marks of components: plain functions that say which part they play in a reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from mttp.rewards.document import Kind

__all__ = ["MARK", "ComponentMark", "check", "judge", "mark_of", "penalty", "rubric", "shaping", "verifier"]

MARK = "__mttp_component__"
"""The attribute of a function that holds its mark."""

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentMark:
    """What a decorator says of a function."""

    kind: Kind
    """The part that it plays."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a component's entry, for a spec that is built in Python: name, range, weight and so on."""


def mark_of(function: object) -> ComponentMark | None:
    """The function's mark; None where it has none."""
    found = getattr(function, MARK, None)
    return found if isinstance(found, ComponentMark) else None


def _mark(kind: Kind, function: Any, options: Mapping[str, Any]) -> Any:
    def marked(target: Any) -> Any:
        if not callable(target):
            raise TypeError(f"@mttp.{kind} marks a function, not {target!r:.80}; options have names")
        setattr(target, MARK, ComponentMark(kind=kind, options=dict(options)))
        return target

    return marked if function is None else marked(function)


@overload
def verifier(function: _F, /) -> _F: ...
@overload
def verifier(**options: Any) -> Callable[[_F], _F]: ...
def verifier(function: Any = None, /, **options: Any) -> Any:
    """
    Mark a function that decides whether the task was done, from the final state: a bool, or a number.

    Bare, or with options, which are the fields of a component in a document (`name`, `weight`, `range`, …).
    The function stays as it is and can be called as before.
    """
    return _mark("verifier", function, options)


@overload
def check(function: _F, /) -> _F: ...
@overload
def check(**options: Any) -> Callable[[_F], _F]: ...
def check(function: Any = None, /, **options: Any) -> Any:
    """
    Mark a hard constraint: where it is false, the sample gets the floor, whatever else it did.

    Options are as for `verifier`.
    """
    return _mark("check", function, options)


@overload
def rubric(function: _F, /) -> _F: ...
@overload
def rubric(**options: Any) -> Callable[[_F], _F]: ...
def rubric(function: Any = None, /, **options: Any) -> Any:
    """Mark a graded criterion that can be observed. Options are as for `verifier`."""
    return _mark("rubric", function, options)


@overload
def shaping(function: _F, /) -> _F: ...
@overload
def shaping(**options: Any) -> Callable[[_F], _F]: ...
def shaping(function: Any = None, /, **options: Any) -> Any:
    """Mark a small signal on the way to the goal. Options are as for `verifier`."""
    return _mark("shaping", function, options)


@overload
def penalty(function: _F, /) -> _F: ...
@overload
def penalty(**options: Any) -> Callable[[_F], _F]: ...
def penalty(function: Any = None, /, **options: Any) -> Any:
    """Mark what is taken off: the larger its value, the less is paid. Options are as for `verifier`."""
    return _mark("penalty", function, options)


@overload
def judge(function: _F, /) -> _F: ...
@overload
def judge(**options: Any) -> Callable[[_F], _F]: ...
def judge(function: Any = None, /, **options: Any) -> Any:
    """
    Mark a model's or a person's opinion; with `relative=True` one that compares the samples of a group.

    Options are as for `verifier`.
    """
    return _mark("judge", function, options)
