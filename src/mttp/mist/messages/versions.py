"""Versions of the protocol."""

from __future__ import annotations

import re

from mttp.errors import VersionError

VERSION = "1"
"""The supported version."""

_INT64 = range(-(2**63), 2**63)
_WHOLE = re.compile(r"[+-]?[0-9]{1,400}").fullmatch
_SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def check_version(text: str) -> None:
    """Raise VersionError unless the version is supported."""
    try:
        number = _number(text)
    except ValueError as error:
        raise VersionError(
            f"{text!r:.80} is not a version of the protocol; version {VERSION} is supported"
        ) from error
    if number != int(VERSION):
        age = "old" if number < int(VERSION) else "new"
        raise VersionError(
            f"version {text!r:.80} of the protocol is too {age}; version {VERSION} is supported"
        )


def negotiate_version(local: str, remote: str) -> str:
    """
    Return the highest version that both sides support.

    Each argument is a version, `"1"`, or a range, `"1-3"`.
    Raises VersionError for any other text, or if there is no common version.
    """
    local_range, remote_range = _range("local", local), _range("remote", remote)
    lowest, highest = max(local_range[0], remote_range[0]), min(local_range[1], remote_range[1])
    if lowest > highest:
        raise VersionError(f"no version in common: local is {local!r:.80}, remote is {remote!r:.80}")
    return str(highest)


def _range(side: str, text: str) -> tuple[int, int]:
    first, dash, last = text.strip(_SPACE).partition("-")
    try:
        lowest, highest = _number(first), _number(last if dash else first)
    except ValueError as error:
        raise VersionError(f"{side} {text!r:.80} is neither a version nor a range such as '1-3'") from error
    if lowest > highest:
        raise VersionError(f"{side} {text!r:.80} is an empty range")
    return lowest, highest


def _number(text: str) -> int:
    text = text.strip(_SPACE)
    if not _WHOLE(text) or int(text) not in _INT64:
        raise ValueError(text)
    return int(text)
