"""Parsing of YAML and JSON with line numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mttp.errors import SpecError
from mttp.rewards.parsing import MAX_BYTES, SourceMark, parse, read
from mttp.rewards.writing import to_json, to_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLAIN)
def test_what_is_written_as_yaml_reads_back(data):
    """
    Text that some YAML version reads as another type stays text.
    """
    assert repr(data) == repr(parse(to_yaml(data)).data)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLAIN)
def test_what_is_written_as_json_reads_back(data):
    """
    JSON is parsed by the YAML reader, escaped or not.
    """
    assert data == parse(to_json(data)).data
    assert data == parse(json.dumps(data)).data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2026-11-21", "2026-11-21"),
        ("1.2.0", "1.2.0"),
        ("1e3", 1000.0),
        ("010", 10),
        ("0x1f", 31),
        ("-.5", -0.5),
        ("~", None),
        ("True", True),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("-0x1f", "-0x1f"),
        ("2001-12-14 21:59:43.10", "2001-12-14 21:59:43.10"),
        ("=", "="),
        ("+.inf", float("inf")),
    ],
)
def test_plain_words_are_what_yaml_1_2_says(text, expected):
    """
    Unlike version 1.1, where `no` is false and 1:30 is 90.
    """
    found = parse(f"key: {text}").data["key"]

    assert (expected, type(expected)) == (found, type(found))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1,\n  b: }", 2, "not valid YAML"),
        ("a: 1\nb: 2\na: 3", 3, "the key 'a' occurs twice"),
        ("a: 1\nb: !!python/object:os.system 1", 2, "the YAML tag"),
        ("a: !!str 1", 1, "the YAML tag"),
        ("a: 1\n---\nb: 1", 3, "more than one YAML document"),
        ("a: 1\nb: *c", 2, "has no anchor"),
        ("a: &a [*a]", 1, "has no anchor"),
        ("a: &x {b: 1}\nc:\n  <<: *x", 3, "the merge key"),
        ("? [1]\n: 2", 1, "a key must be text"),
        ("a: b\nc: \x07", 2, "control character"),
        ("a: " + "[" * 100 + "]" * 100, 1, "nested more than"),
        ("[" * 500_000, 1, "nested more than|maximum nesting depth"),
        ("a:\n  b: " + "9" * 5000, 2, "5,000 digits"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_what_is_not_plain_data_is_refused_with_its_line(text, line, words):
    """
    Tags, merge keys, repeated keys, second documents and depth are errors with a line.
    """
    with pytest.raises(SpecError, match=words) as caught:
        parse(text)

    assert line == caught.value.line


def test_aliases_that_multiply_are_bounded():
    """
    Aliases that expand to billions of values are errors before they are expanded.
    """
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    with pytest.raises(SpecError, match="100,000 values, counting those that aliases repeat"):
        parse("\n".join(lines))


def test_aliases_that_nest_are_bounded():
    """
    Depth includes that of aliases.
    """
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80)]

    with pytest.raises(SpecError, match="nested more than 64 levels deep"):
        parse("\n".join(lines))


def test_an_alias_is_what_it_stands_for():
    """
    Plain aliases are expanded.
    """
    assert {"a": [0, 1], "b": [0, 1]} == parse("a: &range [0, 1]\nb: *range").data


def test_a_huge_file_is_refused(tmp_path):
    """
    The size is checked before parsing.
    """
    path = tmp_path / "huge.yaml"
    path.write_text("# " + "x" * MAX_BYTES)

    with pytest.raises(SpecError, match="it has more than 1,048,576 bytes"):
        read(path)


def test_a_file_that_is_not_utf8_names_the_line(tmp_path):
    """
    The error has path and line.
    """
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: 1\nb: \xe9\n")

    with pytest.raises(SpecError, match="not valid UTF-8") as caught:
        read(path)

    assert (str(path), 2) == (caught.value.path, caught.value.line)


def test_broken_json_is_called_json(tmp_path):
    """
    A `.json` file has the error of the JSON parser.
    """
    path = tmp_path / "spec.json"
    path.write_text('{"a": 1,\n\t"b": }')

    with pytest.raises(SpecError, match=r"spec\.json:2:7: not valid JSON: Expecting value"):
        read(path)


def test_values_and_keys_know_where_they_are():
    """
    A missing place has the position of the nearest enclosing value.
    """
    source = parse("a: 1\nb:\n  - c: 2\n    d: 3\n")

    assert SourceMark(4, 8) == source.mark("b", 0, "d")
    assert SourceMark(4, 5) == source.mark("b", 0, "d", key=True)
    assert SourceMark(3, 5) == source.mark("b", 0, "e")
