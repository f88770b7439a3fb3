"""
Parses options of transports from the query of an address, arguments and environment variables.

The options of a transport are the parameters of its class that are annotated with a type of this module.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import index
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote, urlencode

from mttp.codec.secrets import may_be_secret, without_secrets
from mttp.errors import TransportError
from mttp.model.interrupts import raise_interrupt
from mttp.otlp import regular_files

__all__ = [
    "MAX_CERTIFICATE",
    "ByteCount",
    "Directory",
    "Flag",
    "Headers",
    "Positive",
    "ReadableFile",
    "Seconds",
    "byte_count",
    "escaped_headers",
    "flag",
    "known_are",
    "one_of",
    "open_at",
    "parse",
    "parsers",
    "path_of",
    "take",
    "text",
    "with_query",
]

MAX_CERTIFICATE = 16 << 20
"""Maximum size of a file of certificates or a key, in bytes."""
MAX_SECONDS = 1_000_000
"""Longest time limit; the timers of operating systems do not support longer ones."""
_MOST_CHARACTERS = 500
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")

_T = TypeVar("_T")


# Addresses.


def path_of(address: str) -> str:
    """Return the part of an address after its scheme."""
    return address.partition("://")[2]


def with_query(place: str, options: Mapping[str, object]) -> str:
    """Return the address with options as its query."""
    return f"{place}?{urlencode(options)}" if options else place


def open_at(
    url: str, options: Mapping[str, object], factory: Callable[[str, Mapping[str, object]], _T], doing: str
) -> _T:
    """
    Call `factory` with the address without its query, and the options of the query and of `options`.

    `options` take precedence.
    Prefixes a TransportError with `doing` and the address without secrets.
    """
    address, _, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    try:
        for name, count in Counter(name for name, _ in pairs).items():
            if count > 1:
                raise TransportError(f"option {name} is given {count} times; give it once")
        return factory(address, {**dict(pairs), **options})
    except TransportError as error:
        raise TransportError(f"{doing} {without_secrets(url)!r}: {error}") from error.__cause__


# Options.


def take(options: Mapping[str, object], model: Callable[..., object]) -> dict[str, Any]:
    """
    Parse the options by the annotations of the parameters of `model`; options that are None are omitted.

    Raises TransportError for an unknown option or an invalid value.
    """
    kinds = parsers(model)
    for name in options:
        if name not in kinds:
            known = known_are(name, kinds) if kinds else "; this address has no options"
            raise TransportError(f"unknown option {name!r}{known}")
    values = {name: value for name, value in options.items() if value is not None}
    return {name: parse(kinds[name], value, f"option {name}") for name, value in values.items()}


def parsers(model: Callable[..., object]) -> dict[str, Callable[[Any], object]]:
    """Return the parser of each option of a class or a function, by name."""
    by_name: dict[str, Callable[[Any], object]] = {}
    function = model.__init__ if isinstance(model, type) else model  # type: ignore[misc]
    hints = get_type_hints(function, include_extras=True)
    for name, hint in hints.items():
        for kind in (hint, *get_args(hint)):
            if get_origin(kind) is Literal:
                by_name[name] = one_of(*get_args(kind))
            elif get_origin(kind) is Annotated:
                by_name[name] = kind.__metadata__[0]
    return by_name


def parse(parser: Callable[[Any], object], value: object, source: str) -> Any:
    """Parse a value; raises TransportError with the name of its source."""
    try:
        return parser(value.strip() if isinstance(value, str) else value)
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        shown = source if may_be_secret(source, value) else f"{source}={_shown(value)}"
        raise TransportError(f"{shown}: {error}") from error


def _shown(value: object) -> str:
    try:
        return repr(value)[:_MOST_CHARACTERS]
    except Exception as error:  # an integer of many digits, or an object whose repr raises
        raise_interrupt(error)
        return f"<{type(value).__name__}>"


def known_are(word: str, known: Iterable[str], *, ending: str = "") -> str:
    """Return the end of an error message about an unknown word: a suggestion, and the known words."""
    from difflib import get_close_matches

    choices = list(known)
    nearest = get_close_matches(word, choices, n=1)
    suggestion = f"; did you mean {nearest[0] + ending!r}?" if nearest and word not in choices else ";"
    return f"{suggestion} known are {', '.join(f'{choice}{ending}' for choice in choices)}"


# Parsers of values.


def one_of(*choices: str) -> Callable[[object], str]:
    """Return a parser of one of these words, which returns it in lower case."""

    def word(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return value.lower()

    return word


def _positive(value: object) -> int:
    with suppress(ValueError, TypeError):
        number = int(value) if isinstance(value, str) else index(value)  # type: ignore[arg-type]
        if not isinstance(value, bool) and 0 < number < 10**18:
            return number
    raise ValueError("expected a whole number above zero")


def byte_count(value: object) -> int:
    """Parse a number of bytes, or a size such as 64MB or 1GiB; raises ValueError."""
    match = re.fullmatch(r"([0-9]+)\s*([A-Za-z]*)", value) if isinstance(value, str) else None
    if match is not None and match[2].upper() in _UNITS:
        return _positive(match[1]) * _UNITS[match[2].upper()]
    if not isinstance(value, int):
        raise ValueError("expected a size such as 64MB or 1GiB")
    return _positive(value)


def _seconds(value: object) -> float:
    with suppress(ValueError, TypeError, OverflowError):
        if not isinstance(value, bool) and 0 < float(value) <= MAX_SECONDS:  # type: ignore[arg-type]
            return float(value)  # type: ignore[arg-type]
    raise ValueError(f"expected a number of seconds above zero, at most {MAX_SECONDS:,}")


def text(value: object) -> str:
    """Return nonempty text; raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected text")
    return value


def flag(value: object) -> bool:
    """Parse true or false; raises ValueError."""
    if str(value).lower() not in ("true", "false", "1", "0"):
        raise ValueError("expected true or false")
    return str(value).lower() in ("true", "1")


def _readable(value: object) -> str:
    """Return the absolute path of a readable file; raises ValueError."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ValueError("expected the path of a file")
    try:
        path = Path(value).expanduser().absolute()
        regular_files.read(path, MAX_CERTIFICATE)
    except (OSError, RuntimeError) as error:  # the second where the home directory is unknown
        raise ValueError(f"can't read the file: {getattr(error, 'strerror', error)}") from error
    return str(path)


def _directory(value: object) -> str:
    """Return the absolute path of a directory, which may not exist yet; raises ValueError."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ValueError("expected the path of a directory")
    try:
        path = str(Path(value).expanduser().absolute())
        path.encode()
        if "\0" in path:
            raise ValueError("a path has no null characters")
        return path
    except (OSError, RuntimeError) as error:  # the home or the working directory is unknown
        raise ValueError(str(error)) from error


def _headers(headers: object, decode: Callable[[str], str] = str) -> dict[str, str]:
    """Parse headers by lower-case name; errors omit values, which may be secrets."""
    if isinstance(headers, str):
        pairs = [pair.partition("=") for pair in headers.split(",") if pair.strip()]
        if any(not equals for _, equals, _ in pairs):
            raise ValueError("expected name=value, separated by commas")
        headers = {decode(name.strip()): decode(value.strip()) for name, _, value in pairs}
    if not isinstance(headers, Mapping):
        raise ValueError("expected a mapping of names to values")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid header name")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the value of {name} is not a valid header value")
    return {name.lower(): value for name, value in headers.items()}


escaped_headers = partial(_headers, decode=unquote)
"""Parses headers whose names and values are percent-encoded, as in OpenTelemetry's variables."""
Positive: TypeAlias = Annotated[int, _positive]
ByteCount: TypeAlias = Annotated[int, byte_count]
Seconds: TypeAlias = Annotated[float, _seconds]
Flag: TypeAlias = Annotated[bool, flag]
ReadableFile: TypeAlias = Annotated[str, _readable]
Directory: TypeAlias = Annotated[str, _directory]
Headers: TypeAlias = Annotated[Mapping[str, str], _headers]
