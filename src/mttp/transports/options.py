"""Options of a transport, parsed: text as an address has it, or a value of the right type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mttp.errors import TransportError

__all__ = ["byte_count", "one_of", "path_of", "positive", "take"]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def path_of(address: str) -> str:
    """What follows an address's scheme."""
    return address.partition("://")[2]


def take(options: Mapping[str, object], **known: Callable[[Any], object]) -> dict[str, Any]:
    """Parsed options by name, None left out; raises TransportError for one that is unknown or unreadable."""
    parsed: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise TransportError(f"unknown option {name!r}; known are {', '.join(known)}")
        try:
            parsed |= {} if value is None else {name: known[name](value)}
        except (ValueError, TypeError) as error:
            raise TransportError(f"option {name}={value!r}: {error}") from error
    return parsed


def positive(value: object) -> int:
    """A whole number above zero."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not re.fullmatch(r"0*[1-9][0-9]{0,17}", value.strip()):
        raise ValueError("expected a whole number above zero")
    return int(value)


def byte_count(value: object) -> int:
    """A number of bytes, or a size such as 64MB or 1GiB."""
    if isinstance(value, int):
        return positive(value)
    match = re.fullmatch(r"([0-9]+)\s*([A-Za-z]*)", value.strip()) if isinstance(value, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError("expected a size such as 64MB or 1GiB")
    return positive(match[1]) * _UNITS[match[2].upper()]


def one_of(*choices: str) -> Callable[[object], str]:
    """One of these words."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return value

    return parse
