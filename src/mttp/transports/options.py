"""Options of a transport's address, parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mttp.errors import TransportError

__all__ = ["byte_count", "one_of", "positive", "take"]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def take(options: Mapping[str, str], **known: Callable[[str], object]) -> dict[str, object]:
    """Parsed options by name; raises TransportError for one that is unknown or unreadable."""
    parsed: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            raise TransportError(f"unknown option {name!r}; known are {', '.join(known)}")
        try:
            parsed[name] = known[name](value)
        except ValueError as error:
            raise TransportError(f"option {name}={value!r}: {error}") from error
    return parsed


def positive(value: str) -> int:
    """A whole number above zero."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", value.strip()):
        raise ValueError("expected a whole number above zero")
    return int(value)


def byte_count(value: str) -> int:
    """A size such as 64MB or 1GiB, in bytes."""
    match = re.fullmatch(r"([0-9]+)\s*([A-Za-z]*)", value.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError("expected a size such as 64MB or 1GiB")
    return positive(match[1]) * _UNITS[match[2].upper()]


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words."""

    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return value

    return parse
