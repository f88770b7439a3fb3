"""Decorators that declare a function as a component of a reward spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from mttp.rewards.document import Kind

MARK = "__mttp_component__"
"""The function attribute that holds its `ComponentMark`."""

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentMark:
    """The kind and the options that a decorator attached to a function."""

    kind: Kind
    """The component's kind."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the component in a spec that is built in Python: `name`, `range`, `weight` and so on."""


def mark_of(function: object) -> ComponentMark | None:
    """Return the mark that a decorator attached to `function`, or None."""
    mark = getattr(function, MARK, None)
    return mark if isinstance(mark, ComponentMark) else None


def _mark(kind: Kind, function: Any, options: Mapping[str, Any]) -> Any:
    def marked(target: Any) -> Any:
        if not callable(target):
            advice = "; to check a recording, call mttp.check" if kind == "check" else ""
            raise TypeError(
                f"mttp.rewards.{kind} decorates a function and got {target!r:.80}; "
                f"pass options by keyword, such as weight=0.5{advice}"
            )
        setattr(target, MARK, ComponentMark(kind=kind, options=dict(options)))
        return target

    return marked if function is None else marked(function)


@overload
def verifier(function: _F, /) -> _F: ...
@overload
def verifier(**options: Any) -> Callable[[_F], _F]: ...
def verifier(function: Any = None, /, **options: Any) -> Any:
    """
    Declare a function that decides from the final state whether the task succeeded.

    Use it bare or with options; the function is returned unchanged and can still be called directly:

        >>> import mttp
        >>> @mttp.rewards.verifier(weight=0.7, range=(0, 1))
        ... def right(completion, answer):
        ...     return completion.strip() == answer
        >>> right(" 8", "8")
        True

    Options are the keys of a component in a spec file, among them `name` (str, by default the function's
    name), `weight` (float, 1), `range` (lowest and highest value), `threshold` (the lowest value that
    passes, by default the highest of the range, else 1), `timeout` (seconds), `repeats` and `params`.
    The spec that uses the function validates them and raises `SpecError`.

    The function takes the inputs of a sample by name, and may be `async`. It returns a number or a bool, an
    `mttp.rewards.Score`, a pair (value, explanation or dict), a dict with a `value`, or None to abstain.
    NaN, an infinity, text and an exception are errors of the component: it has no value, and the spec's
    `on_invalid` decides what the sample gets.

    Raises TypeError when the decorated object can't be called.
    """
    return _mark("verifier", function, options)


@overload
def check(function: _F, /) -> _F: ...
@overload
def check(**options: Any) -> Callable[[_F], _F]: ...
def check(function: Any = None, /, **options: Any) -> Any:
    """
    Declare a function that decides whether a sample satisfies a hard constraint.

    A sample that fails a check gets the spec's floor, whatever its other components gave:

        >>> import mttp
        >>> @mttp.rewards.check
        ... def no_tools(completion):
        ...     return "<tool>" not in completion

    Options, return values and errors are those of `verifier`; `weight` has no effect.
    To check a recording against the convention, call `mttp.check`, which is another function.
    """
    return _mark("check", function, options)


@overload
def rubric(function: _F, /) -> _F: ...
@overload
def rubric(**options: Any) -> Callable[[_F], _F]: ...
def rubric(function: Any = None, /, **options: Any) -> Any:
    """
    Declare a function that grades an observable criterion.

        >>> import mttp
        >>> @mttp.rewards.rubric(weight=0.3, range=(0, 1))
        ... def brief(completion):
        ...     return max(0.0, 1 - len(completion) / 100)

    Options, return values and errors are those of `verifier`.
    """
    return _mark("rubric", function, options)


@overload
def shaping(function: _F, /) -> _F: ...
@overload
def shaping(**options: Any) -> Callable[[_F], _F]: ...
def shaping(function: Any = None, /, **options: Any) -> Any:
    """
    Declare a function that gives a small reward for progress towards the goal.

        >>> import mttp
        >>> @mttp.rewards.shaping(scope="step", weight=0.01, range=(0, 1))
        ... def nearer(distance):
        ...     return 1 / (1 + distance)

    Options, return values and errors are those of `verifier`.
    """
    return _mark("shaping", function, options)


@overload
def penalty(function: _F, /) -> _F: ...
@overload
def penalty(**options: Any) -> Callable[[_F], _F]: ...
def penalty(function: Any = None, /, **options: Any) -> Any:
    """
    Declare a function whose weighted value is subtracted from the reward, whichever sign either has.

        >>> import mttp
        >>> @mttp.rewards.penalty(weight=0.1, range=(0, 1))
        ... def long(completion):
        ...     return min(len(completion) / 1000, 1.0)

    Options, return values and errors are those of `verifier`. A penalty that abstains subtracts nothing.
    """
    return _mark("penalty", function, options)


@overload
def judge(function: _F, /) -> _F: ...
@overload
def judge(**options: Any) -> Callable[[_F], _F]: ...
def judge(function: Any = None, /, **options: Any) -> Any:
    """
    Declare a function that returns the opinion of a model or a person.

        >>> import mttp
        >>> @mttp.rewards.judge(relative=True, range=(0, 1))
        ... def shorter(answers):
        ...     longest = max(map(len, answers))
        ...     return [1 - len(answer) / longest for answer in answers]

    With `relative=True` it compares the samples of a group: it takes a list for each input and returns a list
    of values. With `relative="pairwise"` the lists have two items, and it returns how much the first is
    better, from 0 to 1.
    Other options, return values and errors are those of `verifier`.
    """
    return _mark("judge", function, options)
