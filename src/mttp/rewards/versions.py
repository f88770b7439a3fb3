"""Semantic versions of specs, and constraints on them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_PRERELEASE = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION = re.compile(rf"([0-9]+)\.([0-9]+)(?:\.([0-9]+){_PRERELEASE}(?:\+[0-9A-Za-z.-]+)?)?")
_PART = re.compile(rf"(\^|~|>=|<=|==|=|>|<|)\s*([0-9]+(?:\.[0-9]+(?:\.[0-9]+{_PRERELEASE})?)?)")
_COMPARISONS: Mapping[str, Any] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


class Version(NamedTuple):
    """A semantic version; comparison follows its precedence."""

    numbers: tuple[int, ...]
    """Major, minor and patch."""
    is_final: bool
    """Whether it is not a pre-release such as 1.2.0-rc.1; pre-releases come before the release."""
    prerelease: tuple[tuple[bool, int, str], ...]
    """The identifiers after the hyphen; numbers come before words."""


class Constraint(NamedTuple):
    """A constraint on versions."""

    text: str
    """The constraint as written."""
    tests: tuple[Callable[[Version], bool], ...]
    """One test for each comma-separated part."""
    names_prerelease: bool
    """Whether it names a pre-release; only then are pre-releases accepted."""

    def takes(self, found: str) -> bool:
        """Return whether the version `found` satisfies the constraint; raises ValueError."""
        candidate = version(found)
        return (candidate.is_final or self.names_prerelease) and all(test(candidate) for test in self.tests)


def version(text: str) -> Version:
    """Parse a version such as 1.2.0, or 1.2, which equals it; raises ValueError."""
    major, minor, patch, prerelease = _matched(text).groups()
    return _version([int(major), int(minor), int(patch or 0)], prerelease)


def full(text: str) -> str:
    """Return a version with three numbers; raises ValueError."""
    return text if _matched(text)[3] else f"{text}.0"


def constraint(text: str) -> Constraint:
    """Parse a constraint such as `^1.2`, `~1.2`, `>=1.2,<2` or `1.2.0`; raises ValueError."""
    parts = [part for part in map(_PART.fullmatch, map(str.strip, text.split(","))) if part]
    if len(parts) <= text.count(","):
        raise ValueError(f"{text!r} is not a version constraint; write it as ^1.2, ~1.2, >=1.2,<2 or 1.2.0")
    return Constraint(text, tuple(_test(*part.groups()) for part in parts), any(part[3] for part in parts))


def _matched(text: str) -> re.Match[str]:
    match = _VERSION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a version; write two or three numbers, such as 1.2.0")
    return match


def _version(numbers: list[int], prerelease: str | None) -> Version:
    parts = prerelease.split(".") if prerelease else ()
    ranks = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
    return Version((*numbers, 0, 0)[:3], not prerelease, tuple(ranks))


def _test(sign: str, written: str, prerelease: str | None) -> Callable[[Version], bool]:
    """Return the test of one part; it compares only as many numbers as the part has."""
    numbers = [int(number) for number in written.removesuffix(f"-{prerelease}").split(".")]
    least, count = _version(numbers, prerelease), len(numbers)

    def test(candidate: Version) -> bool:
        if sign in ("^", "~"):
            return candidate >= least and candidate.numbers[:fixed] == least.numbers[:fixed]
        if count == 3 or sign == ">=":
            return bool(compare(candidate, least))
        return bool(compare(candidate.numbers[:count], least.numbers[:count]))

    compare = _COMPARISONS.get(sign, operator.eq)
    leading = next((place for place, number in enumerate(numbers) if number), count - 1)
    fixed = min(2, count) if sign == "~" else leading + 1
    return test
