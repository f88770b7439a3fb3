"""
Parses JSON like the reference implementation.

Invalid UTF-8 bytes and lone surrogates are read as U+FFFD.
A byte order mark, NaN, a second value and nesting beyond 10,000 levels are errors.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

_DEEPEST = 10_000
_LARGEST = sys.float_info.max
_space = re.compile(r"[ \t\n\r]*").match
_STRING = r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_string = re.compile(_STRING).match
_scalar = re.compile(f"{_STRING}|{_NUMBER}|true|false|null").match
_HALF = re.compile("[\ud800-\udfff]")
_MAY_BE_HALF = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
_MAY_BE_NEGATIVE_ZERO = re.compile(r"-0(?![0-9.eE])")


class JsonFault(Exception):  # noqa: N818 - never leaves this package
    """An error in a document, and the index of its character."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a repeated name")
    return members


_read = json.JSONDecoder(parse_constant=_refuse).raw_decode
_read_once = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique).raw_decode
_read_signed = json.JSONDecoder(
    parse_constant=_refuse, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits)
).raw_decode
_pass = json.JSONDecoder(parse_constant=_refuse, parse_int=len, parse_float=len).raw_decode
"""Skips a value without converting its numbers."""


class JsonDocument:
    """A JSON value; positions in it are indices of characters, which `position` converts to bytes."""

    __slots__ = ("_halves", "text")

    def __init__(self, raw: bytes) -> None:
        self.text = text = raw.decode("utf-8", "surrogateescape")
        self._halves = (not text.isascii() or "\\u" in text) and _MAY_BE_HALF.search(text) is not None

    def position(self, at: int) -> int:
        """Return the byte offset of a character."""
        return len(self.raw(0, at))

    def raw(self, start: int, end: int) -> bytes:
        """Return the original bytes of a range of characters."""
        return self.text[start:end].encode("utf-8", "surrogateescape")

    def start(self) -> int:
        """Return the start of the value; raises JsonFault unless there is exactly one."""
        start = _after_space(self.text, 0)
        if self.text[start : start + 1] == "\ufeff":
            raise JsonFault("a byte order mark, which JSON must not have", start)
        end = _after_space(self.text, self.skip(start))
        if end < len(self.text):
            raise JsonFault(f"{_shown(self.text, end)} after the end of the value", end)
        return start

    def skip(self, at: int, *, depth: int = 0) -> int:
        """Return the end of the value at `at`, which is nested in `depth` others."""
        try:
            return int(_pass(self.text, at)[1])
        except (ValueError, RecursionError):
            return _walk(self.text, at, depth)

    def value(self, at: int) -> Any:
        """Parse the value at `at`; of a repeated name in an object the last is used."""
        try:
            read = _read_signed if _MAY_BE_NEGATIVE_ZERO.search(self.text, at) else _read
            value = read(self.text, at)[0]
        except (ValueError, RecursionError) as error:
            _walk(self.text, at)
            raise JsonFault("nested too deeply, or a number with too many digits", at) from error
        try:
            _refuse_too_large(value)
        except ValueError as error:
            raise JsonFault(str(error), at) from error
        return _whole(value) if self._halves else value

    def plain(self) -> Any:
        """Parse the document fast; raises ValueError if it may have repeated names or other special cases."""
        start = _after_space(self.text, 0)
        try:
            value, end = _read_once(self.text, start)
        except RecursionError as error:
            raise ValueError(str(error)) from error
        rest = _after_space(self.text, end) < len(self.text)
        if rest or self._halves or _MAY_BE_NEGATIVE_ZERO.search(self.text):
            raise ValueError("needs the slow parser")
        _refuse_too_large(value)
        return value

    def kind(self, at: int) -> str:
        """Return the kind of the value at `at`, for messages."""
        return _KINDS.get(self.text[at], "a number")

    def members(self, at: int) -> Iterator[tuple[str, int, int]]:
        """Yield the name, start and end of each value of the object at `at`."""
        text = self.text
        at = _after_space(text, at + 1)
        while text[at : at + 1] != "}":
            key, at = _key(text, at)
            end = self.skip(at)
            yield (_HALF.sub("\ufffd", key) if self._halves else key), at, end
            at = _next(text, end, "}")

    def elements(self, at: int) -> Iterator[int]:
        """Yield the start of each element of the array at `at`."""
        text = self.text
        at = _after_space(text, at + 1)
        while text[at : at + 1] != "]":
            yield at
            at = _next(text, self.skip(at), "]")


_KINDS = {
    "{": "an object",
    "[": "an array",
    '"': "a string",
    "t": "a boolean",
    "f": "a boolean",
    "n": "null",
}


def _walk(text: str, at: int, depth: int = 0) -> int:
    """Return the end of a value; slow, but without a limit of recursion, and exact about errors."""
    closing: list[str] = []
    while True:
        at = _after_space(text, at)
        if text[at : at + 1] in ("{", "["):
            closing.append("}" if text[at] == "{" else "]")
            if depth + len(closing) > _DEEPEST:
                raise JsonFault(f"nested deeper than {_DEEPEST:,}", at)
            at = _after_space(text, at + 1)
            if text[at : at + 1] != closing[-1]:
                at = _key(text, at)[1] if closing[-1] == "}" else at
                continue
        elif scalar := _scalar(text, at):
            at = scalar.end()
        else:
            raise JsonFault(f"{_shown(text, at)} where a value should begin", at)
        while closing:
            at = _next(text, at, closing[-1])
            if text[at : at + 1] != closing[-1]:
                at = _key(text, at)[1] if closing[-1] == "}" else at
                break
            closing.pop()
            at += 1
        else:
            return at


def _next(text: str, at: int, closing: str) -> int:
    """Return the start of the next value, or the position of `closing`."""
    at = _after_space(text, at)
    if text[at : at + 1] == closing:
        return at
    if text[at : at + 1] != ",":
        raise JsonFault(f"{_shown(text, at)} where ',' or {closing!r} should be", at)
    at = _after_space(text, at + 1)
    if text[at : at + 1] == closing:
        raise JsonFault(f"{closing!r} after ','", at)
    return at


def _key(text: str, at: int) -> tuple[str, int]:
    """Parse a name; return it with the start of its value."""
    if not _string(text, at):
        raise JsonFault(f"{_shown(text, at)} where a name in quotes should be", at)
    key, at = _read(text, at)
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise JsonFault(f"{_shown(text, at)} where ':' should be", at)
    return key, _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    match = _space(text, at)
    return match.end() if match else at


def _shown(text: str, at: int) -> str:
    """Return the text at `at`, for messages."""
    return ascii(text[at : at + 12]) if at < len(text) else "the end"


def _refuse_too_large(value: Any) -> None:
    """Raise ValueError for a number beyond float64, which the reference rejects."""
    if isinstance(value, dict):
        for item in value.values():
            _refuse_too_large(item)
    elif isinstance(value, list):
        if not _are_numbers(value):
            for item in value:
                _refuse_too_large(item)
    elif isinstance(value, (int, float)) and not -_LARGEST <= value <= _LARGEST:
        raise ValueError("a number beyond float64")


def _are_numbers(values: list[Any]) -> bool:
    """Whether all values are numbers within float64."""
    try:
        return bool(min(values) >= -_LARGEST and max(values) <= _LARGEST)
    except (TypeError, ValueError):  # other types, or an empty list
        return False


def _whole(value: Any) -> Any:
    """Return the value with each lone surrogate replaced by U+FFFD."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
