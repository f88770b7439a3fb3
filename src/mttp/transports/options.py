"""Options of a transport, parsed: text as an address has it, or a value of the right type."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mttp import regular_files
from mttp.errors import TransportError

__all__ = [
    "MAX_CERTIFICATE",
    "byte_count",
    "checked_headers",
    "headers",
    "one_of",
    "path_of",
    "positive",
    "readable",
    "seconds",
    "take",
    "text",
    "without_secrets",
]

MAX_CERTIFICATE = 16 << 20
"""Largest file of certificates or of a key, in bytes."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_LOCAL = ("memory", "file", "mttp+file", "mttp+stdio", "chan")
"""Schemes of addresses that need no credentials."""
_SECRET = re.compile(r"h[a-z]*d[a-z]*r|auth|token|pass|secret|cred|api|=[^&]*=", re.IGNORECASE)
"""What options look like that may hold credentials, misspelt ones included."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


def path_of(address: str) -> str:
    """What follows an address's scheme."""
    return address.partition("://")[2]


def without_secrets(address: str) -> str:
    """An address as an error may show it: without credentials, and without options that may hold any."""
    place, _, query = address.partition("?")
    scheme, _, rest = place.partition("://")
    if scheme in _LOCAL:
        return address
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        place = f"{scheme}://…@{authority.rpartition('@')[2]}{slash}{path}"
    return place if not query or _SECRET.search(query) else f"{place}?{query}"


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


def seconds(value: object) -> float:
    """A number of seconds above zero."""
    found = math.nan
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        with suppress(ValueError):
            found = float(value)
    if not 0 < found < math.inf:
        raise ValueError("expected a number of seconds above zero")
    return found


def text(value: object) -> str:
    """Some text."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected text")
    return value


def readable(value: object) -> str:
    """The absolute path of a file that can be read."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ValueError("expected the path of a file")
    path = Path(value).expanduser().absolute()
    try:
        regular_files.read(path, MAX_CERTIFICATE)
    except OSError as error:
        raise ValueError(f"can't read it: {error.strerror}") from error
    return str(path)


def headers(given: object) -> dict[str, str]:
    """Headers by lower-case name, of `name=value,name=value` or a mapping; raises TransportError."""
    if isinstance(given, str):
        pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
        if any(not equals for _, equals, _ in pairs):
            raise TransportError("option headers: expected name=value, separated by commas")
        given = {name.strip(): value.strip() for name, _, value in pairs}
    if given is not None and not isinstance(given, Mapping):
        raise TransportError("option headers: expected a mapping of names to values")
    return checked_headers(given or {}, "option headers")


def checked_headers(given: Mapping[Any, Any], source: str) -> dict[str, str]:
    """The headers by lower-case name; errors don't repeat values, which are often secret."""
    for name, value in given.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise TransportError(f"{source}: {name!r} can't be a header's name")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise TransportError(f"{source}: the value of {name} can't be a header's")
    return {name.lower(): value for name, value in given.items()}
