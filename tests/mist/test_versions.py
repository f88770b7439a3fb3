"""Versions of the protocol."""

from __future__ import annotations

import pytest

from mttp.errors import VersionError
from mttp.mist.messages import check_version, negotiate_version


@pytest.mark.parametrize("text", ["1", " 1 ", "+1", "01", "\u00a01", "\t1\n"])
def test_this_version_is_understood(text: str):
    """
    However it is spelled.
    """
    check_version(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a version"),
        ("1.0", "'1.0' is not a version of the protocol; version 1 is supported"),
        ("one", "not a version"),
        ("1_0", "not a version"),
        ("\u0661", "not a version"),
        ("1\x1c", "not a version"),
        ("99999999999999999999", "not a version"),
        ("9" * 5_000, "not a version"),
        ("0", "version '0' of the protocol is too old"),
        ("-1", "too old"),
        ("2", "version '2' of the protocol is too new; version 1 is supported"),
    ],
)
def test_others_are_not(text: str, message: str):
    """
    Text that is no number, and numbers of other versions.
    """
    with pytest.raises(VersionError, match=message):
        check_version(text)


@pytest.mark.parametrize(
    ("local", "remote", "expected"),
    [
        ("1", "1", "1"),
        ("1-3", "2", "2"),
        ("1-3", "2-9", "3"),
        (" 1 - 3 ", " 2 ", "2"),
        ("+1-+4", "03", "3"),
        ("0", "0", "0"),
    ],
)
def test_the_highest_version_of_both_is_spoken(local: str, remote: str, expected: str):
    """
    Each says one version or a range.
    """
    assert expected == negotiate_version(local, remote)
    assert expected == negotiate_version(remote, local)


@pytest.mark.parametrize(
    ("local", "remote", "message"),
    [
        ("1", "2", "no version in common: local is '1', remote is '2'"),
        ("-1", "1", "local '-1' is neither a version nor a range"),
        ("1-", "1", "local '1-' is neither"),
        ("1", "x", "remote 'x' is neither"),
        ("1-2-3", "1", "local '1-2-3' is neither"),
        ("", "1", "local '' is neither"),
        ("3-1", "1", "local '3-1' is an empty range"),
        ("1--2", "1", "is an empty range"),
    ],
)
def test_without_a_version_in_common_there_is_an_error(local: str, remote: str, message: str):
    """
    It says which side is wrong, or that they do not meet.
    """
    with pytest.raises(VersionError, match=message):
        negotiate_version(local, remote)
