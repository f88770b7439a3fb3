"""Semantic versions of specs, and which of them a constraint takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import total_ordering

__all__ = ["Constraint", "Version", "constraint", "full", "version"]

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?)?")
_PART = re.compile(r"(\^|~|>=|<=|==|=|>|<)?\s*(\d+)(?:\.(\d+)(?:\.(\d+)(?:-([0-9A-Za-z.-]+))?)?)?")


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; they compare as its precedence says."""

    numbers: tuple[int, int, int]
    """Major, minor and patch."""
    early: tuple[str, ...] = ()
    """What stands behind the hyphen, such as `("rc", "1")`: it comes before the version without it."""

    def __lt__(self, other: Version) -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[object, ...]:
        parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.early]
        return self.numbers, not self.early, parts


@dataclass(frozen=True, slots=True)
class Constraint:
    """Which versions will do."""

    text: str
    """As it is written."""
    tests: tuple[Callable[[Version], bool], ...] = field(repr=False, compare=False)
    """What each part of it takes."""
    names_early: bool = field(repr=False, compare=False)
    """Whether it names an early version; only then are such taken."""

    def takes(self, found: str) -> bool:
        """Whether the version `found` will do."""
        candidate = version(found)
        if candidate.early and not self.names_early:
            return False
        return all(test(candidate) for test in self.tests)


def version(text: str) -> Version:
    """The version that `text` is, such as 1.2.0, or 1.2 for the same; raises ValueError."""
    major, minor, patch, early = _matched(text).groups()
    return Version((int(major), int(minor), int(patch or 0)), tuple(early.split(".")) if early else ())


def full(text: str) -> str:
    """A version with all of its three numbers; raises ValueError."""
    return text if _matched(text)[3] else f"{text}.0"


def _matched(text: str) -> re.Match[str]:
    found = _VERSION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no version of two or three numbers, such as 1.2.0")
    return found


def constraint(text: str) -> Constraint:
    """The constraint that `text` is, such as `^1.2`, `~1.2`, `>=1.2,<2` or `1.2.0`; raises ValueError."""
    parts = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    if any(part is None for part in parts):
        raise ValueError(f"{text!r} is no version, nor such as ^1.2, ~1.2 or >=1.2,<2")
    found = [part.groups() for part in parts if part]
    return Constraint(text, tuple(_test(*part) for part in found), any(part[-1] for part in found))


def _test(
    sign: str | None, major: str, minor: str | None, patch: str | None, early: str | None
) -> Callable[[Version], bool]:
    stated = [int(part) for part in (major, minor, patch) if part is not None]
    least = Version((*stated, 0, 0)[:3], tuple(early.split(".")) if early else ())  # type: ignore[arg-type]
    after = Version(_above(stated, len(stated) - 1))
    if sign == "^":
        return lambda found: least <= found < Version(_above(stated, _leading(stated)))
    if sign == "~":
        return lambda found: least <= found < Version(_above(stated, min(1, len(stated) - 1)))
    if sign == ">=":
        return lambda found: found >= least
    if sign == "<":
        return lambda found: found < least
    if sign == ">":
        return lambda found: found > least if len(stated) == 3 else found >= after
    if sign == "<=":
        return lambda found: found <= least if len(stated) == 3 else found < after
    return lambda found: found == least if len(stated) == 3 else least <= found < after


def _leading(stated: list[int]) -> int:
    """Position of the first number that is not 0: that one must not change."""
    return next((index for index, number in enumerate(stated) if number), len(stated) - 1)


def _above(stated: list[int], position: int) -> tuple[int, int, int]:
    """The first version whose number at `position` is one more."""
    raised = [*stated[:position], stated[position] + 1, 0, 0]
    return raised[0], raised[1], raised[2]
