"""Each span that the registry knows, whole and with one thing wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from reading.good import OF_ANOTHER, SPANS, Spans, entries, is_template, span, value_type

import mttp
from mttp.model.spans import Link, SpanEvent, SpanRecord

ATTRIBUTES = [(type_, entry) for type_ in SPANS for entry in entries(type_).values()]
REQUIRED = [(type_, entry["key"]) for type_, entry in ATTRIBUTES if entry["requirement_level"] == "required"]
CONDITIONS = [
    (type_, entry["key"], *next(iter(when.items())))
    for type_, entry in ATTRIBUTES
    if (when := entry.get("annotations", {}).get("mttp", {}).get("when"))
]
TYPED = [
    (type_, entry["key"] + ".name" * is_template(entry), OF_ANOTHER[value_type(entry)])
    for type_, entry in ATTRIBUTES
    if value_type(entry) in OF_ANOTHER
]
OF_ANOTHER_OPERATION = ("mttp.tool_call", "gen_ai.operation.name")  # with another it is no call of a tool
ENUMS = [
    (type_, entry["key"])
    for type_, entry in ATTRIBUTES
    if isinstance(entry["type"], dict) and (type_, entry["key"]) != OF_ANOTHER_OPERATION
]


def found(*records: SpanRecord) -> list[tuple[str, str | None]]:
    """Ids and attributes of what is wrong with the spans."""
    return [(finding.id, finding.attribute) for finding in mttp.check(Spans(*records))]


def without(record: SpanRecord, *keys: str) -> SpanRecord:
    """The span, lacking attributes."""
    kept = {key: value for key, value in record.attributes.items() if key not in keys}
    return replace(record, attributes=kept)


def having(record: SpanRecord, **attributes: Any) -> SpanRecord:
    """The span, with other attributes; two underscores stand for a dot."""
    given = {key.replace("__", "."): value for key, value in attributes.items()}
    return replace(record, attributes={**record.attributes, **given})


@pytest.mark.parametrize("type_", SPANS)
def test_a_good_span_has_no_findings(type_: str):
    """
    With everything that the registry lists, and with nothing but what is required, on a condition or always.
    """
    whole = span(type_)
    required = {key for of, key, *_ in (*REQUIRED, *CONDITIONS) if of == type_}
    optional = [key for key in whole.attributes if key not in required]

    assert [] == found(whole, without(whole, *optional))


@pytest.mark.parametrize(("type_", "key"), REQUIRED)
def test_a_required_attribute_that_is_missing_is_found(type_: str, key: str):
    """
    Each one, of each span.
    """
    assert [("required_attribute_not_present", key)] == found(without(span(type_), key))


@pytest.mark.parametrize(("type_", "key", "other", "values"), CONDITIONS)
def test_an_attribute_is_required_where_its_condition_holds(
    type_: str, key: str, other: str, values: list[str]
):
    """
    A condition is that another attribute has one of some values, or any.
    """
    lacking = without(span(type_), key)
    met = [replace(lacking, attributes={**lacking.attributes, other: value}) for value in values] or [lacking]
    name = "conditionally_required_attribute_not_present"

    assert [[(name, key)]] * len(met) == [[item for item in found(one) if item[1] == key] for one in met]
    assert (name, key) not in found(without(lacking, other))
    assert (name, key) not in found(having(met[0], mttp__omissions=[f"{key}: content is off"]))


def test_a_condition_that_does_not_hold_requires_nothing():
    """
    A reward that is an error has no value; that it failed is all there is to say.
    """
    failed = having(without(span("mttp.reward"), "mttp.reward.value"), mttp__reward__status="error")

    assert [("grading_failed", "mttp.reward.status")] == found(failed)


@pytest.mark.parametrize(("type_", "key", "value"), TYPED)
def test_a_value_of_another_type_is_found(type_: str, key: str, value: Any):
    """
    Each attribute of each span; an integer is no double, a float no integer.
    """
    changed = replace(span(type_), attributes={**span(type_).attributes, key: value})

    assert ("type_mismatch", key) in found(changed)
    assert {key} == {attribute for id_, attribute in found(changed) if id_ == "type_mismatch"}


@pytest.mark.parametrize(("type_", "key"), ENUMS)
def test_an_unknown_value_of_an_enum_is_information(type_: str, key: str):
    """
    Enums are open: it is reported, and is not a fault.
    """
    changed = replace(span(type_), attributes={**span(type_).attributes, key: "odd"})
    (finding,) = mttp.check(Spans(changed))

    assert ("undefined_enum_variant", "information", key) == (finding.id, finding.level, finding.attribute)
    assert f"Enum attribute '{key}' has value 'odd' which is not documented." == finding.message


@pytest.mark.parametrize("type_", SPANS)
def test_a_span_in_the_wrong_place_is_found(type_: str):
    """
    A root that has a parent, a child that has none.
    """
    good = span(type_)
    moved = replace(good, parent_id="" if good.parent_id else "6" * 16)
    expected = "missing_parent" if good.parent_id else "unexpected_parent"

    assert [(expected, None)] == found(moved)


@pytest.mark.parametrize("type_", SPANS)
def test_a_span_of_the_wrong_kind_is_found(type_: str):
    """
    Unspecified counts as internal, as OTLP says.
    """
    good = span(type_)
    unspecified = [("kind_mismatch", None)] if good.kind != 1 else []

    assert [("kind_mismatch", None)] == found(replace(good, kind=2))
    assert unspecified == found(replace(good, kind=0))


def test_an_attribute_of_another_span_is_an_improvement():
    """
    It is known, but not there; the user's own may be anywhere.
    """
    step = having(span("mttp.step"), mttp__gap__spans=3, mine=4, http__request__method="GET")
    (finding,) = mttp.check(Spans(step))

    assert ("unexpected_attribute", "improvement") == (finding.id, finding.level)


def test_a_call_of_an_operation_that_no_registry_lists_is_a_call():
    """
    Whatever its name begins with.
    """
    call = having(replace(span("mttp.model_call"), name="reward me"), gen_ai__operation__name="embeddings")

    assert [("undefined_enum_variant", "gen_ai.operation.name")] == found(call)


def test_attributes_of_events_and_links_are_checked_too():
    """
    An exception's message is text.
    """
    event = SpanEvent("exception", 1, {"exception.message": 3, "mine": 1})
    link = Link("5" * 32, "8" * 16, {"mttp.odd": 1})
    parts = replace(span("mttp.step"), events=(event,), links=(link,))

    assert [("missing_attribute", "mttp.odd"), ("type_mismatch", "exception.message")] == found(parts)


@pytest.mark.parametrize(
    "value", [[], {}, None, [None], [[]], b"", {"a": 1}, float("nan"), "x" * 1000, 2**63 - 1, [1, "a", None]]
)
def test_any_value_anywhere_is_a_finding_at_most(value: Any):
    """
    Whatever an attribute holds, the check goes on.
    """
    good = span("mttp.episode")
    for key in good.attributes:
        mttp.check(Spans(replace(good, attributes={**good.attributes, key: value})))
