"""
Encodes JSON byte for byte like the reference implementation, so that checksums remain valid after relays.

There is no space between tokens, `<`, `>`, `&`, U+2028 and U+2029 are escaped, and numbers are short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

from mttp.errors import EncodeError

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPED_BYTES = [(character.encode(), escape.encode()) for character, escape in _ESCAPED.items()]
_STRING = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
_SPACE = b" \t\n\r"
_LITERALS = {None: "null", True: "true", False: "false"}


def encode(value: Any) -> bytes:
    """
    Encode plain data as JSON.

    Names keep their order; a whole float has no fraction (`1.0` is written `1`).
    Raises EncodeError for NaN, infinities, lone surrogates and objects of other types.
    """
    try:
        text = _write(value)
    except RecursionError as error:
        raise EncodeError("the value is nested too deeply") from error
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        context = text[max(error.start - 20, 0) : error.end]
        raise EncodeError(f"text with half a surrogate pair: {context!a}") from error


def compact(raw: bytes) -> bytes:
    """Remove spaces from valid JSON and escape five characters, as a relay does."""
    if any(raw.count(space) for space in (b" ", b"\n", b"\t", b"\r")):
        pieces = _STRING.split(raw)
        pieces[::2] = [piece.translate(None, _SPACE) for piece in pieces[::2]]
        raw = b"".join(pieces)
    for character, escape in _ESCAPED_BYTES:
        raw = raw.replace(character, escape)
    return raw


def _write(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is float:
        return _number(value)
    if kind is list or kind is tuple:
        return f"[{','.join(map(_writer(value), value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join([f'{_name(key)}:{_write(item)}' for key, item in value.items()])}}}"
    if value is None or isinstance(value, (bool, int)):
        return _spelled(value)
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, str):
        return encode_basestring(value)
    raise EncodeError(f"JSON can't represent {kind.__name__}: {value!r:.80}")


def _writer(values: Sequence[Any]) -> Callable[[Any], str]:
    """Return a function that encodes each of the values, which often have one type."""
    kinds = set(map(type, values))
    return _WRITERS.get(kinds.pop(), _write) if len(kinds) == 1 else _write


def _spelled(value: int | None) -> str:
    if value is None or isinstance(value, bool):
        return _LITERALS[value]
    try:
        return int.__repr__(value)
    except ValueError as error:  # Python raises for integers of more than about 4,300 digits
        raise EncodeError("the integer has too many digits") from error


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise EncodeError(f"a name in JSON must be text, not {key!r:.80}")
    return encode_basestring(key)


def _number(value: float) -> str:
    """Return the shortest digits of a float, with an exponent below 1e-6 and from 1e21."""
    text = float.__repr__(value)
    if "e" not in text and "n" not in text:
        return text.removesuffix(".0")
    if not isfinite(value):
        raise EncodeError(f"JSON can't represent {value}")
    digits, _, exponent = text.partition("e")
    if -6 <= int(exponent) < 21:
        return f"{Decimal(text):f}"
    return f"{digits}e{int(exponent):+d}"


_WRITERS: Mapping[type, Callable[[Any], str]] = {float: _number, int: _spelled, str: encode_basestring}
