"""Semantic versions of specs, and which of them a constraint takes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Constraint", "Version", "constraint", "full", "version"]

_EARLY = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION = re.compile(rf"([0-9]+)\.([0-9]+)(?:\.([0-9]+){_EARLY}(?:\+[0-9A-Za-z.-]+)?)?")
_PART = re.compile(rf"(\^|~|>=|<=|==|=|>|<|)\s*([0-9]+(?:\.[0-9]+(?:\.[0-9]+{_EARLY})?)?)")
_COMPARISONS: Mapping[str, Any] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


class Version(NamedTuple):
    """A semantic version; they compare as its precedence says."""

    numbers: tuple[int, ...]
    """Major, minor and patch."""
    is_final: bool
    """Whether it is none of the early versions, such as 1.2.0-rc.1, which come before it."""
    early: tuple[tuple[bool, int, str], ...]
    """The parts behind the hyphen: numbers come before words."""


class Constraint(NamedTuple):
    """Which versions will do."""

    text: str
    """As it is written."""
    tests: tuple[Callable[[Version], bool], ...]
    """What each part of it takes."""
    names_early: bool
    """Whether it names an early version; only then are such taken."""

    def takes(self, found: str) -> bool:
        """Whether the version `found` will do."""
        candidate = version(found)
        return (candidate.is_final or self.names_early) and all(test(candidate) for test in self.tests)


def version(text: str) -> Version:
    """The version that `text` is, such as 1.2.0, or 1.2 for the same; raises ValueError."""
    major, minor, patch, early = _matched(text).groups()
    return _made([int(major), int(minor), int(patch or 0)], early)


def full(text: str) -> str:
    """A version with all of its three numbers; raises ValueError."""
    return text if _matched(text)[3] else f"{text}.0"


def constraint(text: str) -> Constraint:
    """The constraint that `text` is, such as `^1.2`, `~1.2`, `>=1.2,<2` or `1.2.0`; raises ValueError."""
    parts = [part for part in map(_PART.fullmatch, map(str.strip, text.split(","))) if part]
    if len(parts) <= text.count(","):
        raise ValueError(f"{text!r} is no version, nor such as ^1.2, ~1.2 or >=1.2,<2")
    return Constraint(text, tuple(_test(*part.groups()) for part in parts), any(part[3] for part in parts))


def _matched(text: str) -> re.Match[str]:
    found = _VERSION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no version of two or three numbers, such as 1.2.0")
    return found


def _made(numbers: list[int], early: str | None) -> Version:
    parts = early.split(".") if early else ()
    ranks = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
    return Version((*numbers, 0, 0)[:3], not early, tuple(ranks))


def _test(sign: str, said: str, early: str | None) -> Callable[[Version], bool]:
    """What one part of a constraint takes; only as many numbers as it says are compared."""
    stated = [int(number) for number in said.removesuffix(f"-{early}").split(".")]
    least, count = _made(stated, early), len(stated)

    def test(found: Version) -> bool:
        if sign in ("^", "~"):
            return found >= least and found.numbers[:fixed] == least.numbers[:fixed]
        if count == 3 or sign == ">=":
            return bool(compare(found, least))
        return bool(compare(found.numbers[:count], least.numbers[:count]))

    compare = _COMPARISONS.get(sign, operator.eq)
    leading = next((place for place, number in enumerate(stated) if number), count - 1)
    fixed = min(2, count) if sign == "~" else leading + 1
    return test
