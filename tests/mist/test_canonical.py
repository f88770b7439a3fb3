"""JSON as the reference writes it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from vectors import anything

from mttp.errors import EncodeError
from mttp.mist.messages.canonical import compact, encode


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1.0, "1"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (0.00001, "0.00001"),
        (1.5e-6, "0.0000015"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        (123456789.125, "123456789.125"),
        (1e16, "10000000000000000"),
        (1.2345678901234567e20, "123456789012345670000"),
        (1e21, "1e+21"),
        (-1e100, "-1e+100"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2**64, "18446744073709551616"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_numbers_are_spelled_as_the_reference_spells_them(number: float | None, expected: str):
    """
    The shortest digits; an exponent below 1e-6 and from 1e21 on; also among others.
    """
    assert expected == encode(number).decode()
    assert f"[{expected},{expected}]" == encode([number, number]).decode()


def test_strings_escape_what_the_reference_escapes():
    """
    Control characters, quotes, what HTML would read, and the two line separators; all else stays UTF-8.
    """
    text = '\x00\x1f\b\f\n\r\t"\\/<>&\u2028\u2029\x7fü😀'
    expected = r'"\u0000\u001f\b\f\n\r\t\"\\/\u003c\u003e\u0026\u2028\u2029' + '\x7fü😀"'

    assert expected == encode(text).decode()


@given(anything)
def test_what_is_written_is_json_of_the_same_value(value: object):
    """
    Names keep their order.
    """
    written = encode(value)

    assert value == json.loads(written)
    assert written == compact(written)


@given(anything)
def test_compacting_any_spelling_gives_the_same_value(value: object):
    """
    Spaces go, but for those in strings.
    """
    loose = json.dumps(value, indent=3, ensure_ascii=False).encode()

    assert value == json.loads(compact(loose))
    assert b"\n" not in compact(loose)


def test_compacting_keeps_what_is_not_spaces():
    """
    Numbers and escapes stay as they were written.
    """
    raw = rb' { "a" : [ 1.0 , 1e3 ,"\u00fc \" <" ] , "b":"' + b'\xff\xe2\x80\xa8" }\r\n'

    assert rb'{"a":[1.0,1e3,"\u00fc \" \u003c"],"b":"' + b"\xff" + rb'\u2028"}' == compact(raw)


def deep() -> object:
    """A list in a list in a list …"""
    found: list[object] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "JSON can't represent nan"),
        ([1.0, -math.inf], "JSON can't represent -inf"),
        (b"x", "JSON can't represent bytes: b'x'"),
        ({1: 2}, "a name in JSON must be text, not 1"),
        ("\ud800", r"text with half a surrogate pair: '\"\\ud800'"),
        (10**5_000, "the integer has too many digits"),
        (deep(), "nested too deeply"),
    ],
    ids=["nan", "infinity", "bytes", "name", "surrogate", "digits", "depth"],
)
def test_what_json_can_not_hold_is_refused(value: object, message: str):
    """
    With the value.
    """
    with pytest.raises(EncodeError, match=message):
        encode(value)
