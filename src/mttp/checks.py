"""`mttp.check`, which two things are called: the check of a recording, and the mark of a hard constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from mttp.reading.checking import Findings
    from mttp.reading.sources import Source

__all__ = ["check"]

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def check(function: _F, /) -> _F: ...
@overload
def check(**options: Any) -> Callable[[_F], _F]: ...
@overload
def check(source: Source, /, *, progress: Callable[[int], object] | None = None) -> Findings: ...
def check(target: Any = None, /, **options: Any) -> Any:
    """
    Check a recording against the convention; or, as a decorator, mark a function as a check of a reward spec.

    A recording is whatever `mttp.read` takes; what is found comes back as `mttp.reading.checking.Findings`.
    As `@mttp.check`, bare or with options, it marks a hard constraint, as `mttp.verifier` marks a verifier.
    """
    if target is None or callable(target):
        from mttp.rewards.components import check as mark

        return mark(target, **options) if target is not None else mark(**options)
    from mttp.reading.checking import check as examine

    return examine(target, **options)
