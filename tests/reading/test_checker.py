"""Whole recordings: what is ours, where it comes from, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reading.good import SCOPE, Spans, span
from reading.traces import foreign, write, write_bytes

import mttp
from mttp.errors import ReadError
from mttp.model.spans import Scope, SpanRecord
from mttp.semconv import SCHEMA_URL

SCHEMAS = SCHEMA_URL.rpartition("/")[0]


def moved(record: SpanRecord, **scope: object) -> SpanRecord:
    """The span, of another scope."""
    return replace(record, scope=replace(record.scope, **scope))  # type: ignore[arg-type]


def found(*records: SpanRecord) -> list[tuple[str, str, str]]:
    """Ids, levels and subjects of the findings."""
    return [(finding.id, finding.level, finding.signal_type) for finding in mttp.check(Spans(*records))]


def test_spans_of_others_are_counted_and_not_checked():
    """
    Kinds, parents and attributes of foreign spans cause no findings.
    """
    findings = mttp.check(write("a.jsonl", [span("mttp.step"), foreign(1), foreign(2)]))

    assert ([], 1, 2) == (findings.all, findings.spans, findings.foreign)


def test_what_others_carry_of_ours_is_checked():
    """
    Attributes under `mttp` on a foreign span are checked.
    """
    attributes = {"mttp.run.id": 7, "mttp.odd": 1, "gen_ai.request.max_tokens": "64"}
    theirs = replace(foreign(1), attributes=attributes)

    assert [("missing_attribute", "violation", "span"), ("type_mismatch", "violation", "span")] == found(
        theirs
    )


@pytest.mark.parametrize(
    ("scope", "ours"),
    [
        (Scope(name="mttp"), 1),
        (Scope(name="recorder", schema_url=f"{SCHEMAS}/0.0.1"), 1),
        (Scope(), 1),
        (Scope(name="httpx", schema_url="https://opentelemetry.io/schemas/1.44.0"), 0),
    ],
)
def test_ours_is_what_our_scope_or_schema_says(scope: Scope, ours: int):
    """
    A span belongs to mttp by its scope's name, its schema URL or, without a scope, its run id.
    """
    assert ours == mttp.check(Spans(replace(span("mttp.step"), scope=scope))).spans


@pytest.mark.parametrize(
    ("schema_url", "expected"),
    [
        (SCHEMA_URL, []),
        (f"{SCHEMAS}/99.0.0", [("schema_url_mismatch", "information", "instrumentation_scope")]),
        ("", [("schema_url_mismatch", "improvement", "instrumentation_scope")]),
    ],
)
def test_the_schema_url_says_which_version_is_followed(schema_url: str, expected: list[object]):
    """
    Another version is information; no schema URL is an improvement.
    """
    assert expected == found(moved(span("mttp.step"), schema_url=schema_url))


def test_the_resource_says_who_records():
    """
    The resource must have service name and run id, and its attributes the types of the registry.
    """
    nobody = moved(span("mttp.step"), resource={})
    somebody = moved(span("mttp.step"), resource={**SCOPE.resource, "process.pid": "7"})
    missing = ("entity_required_attribute_not_present", "violation", "resource")

    assert [missing, missing] == found(nobody)
    assert [("type_mismatch", "violation", "resource")] == found(somebody)


def test_what_the_files_have_wrong_stands_beside():
    """
    A broken line is a problem, not a finding.
    """
    path = write_bytes("a.jsonl", write("b.jsonl", [span("mttp.step")]).read_bytes() + b"{broken\n")
    findings = mttp.check(path)

    assert ([], ["broken_line"], [path]) == (
        findings.all,
        [problem.kind for problem in findings.problems],
        findings.sources,
    )


def test_what_can_not_be_read_is_an_error():
    """
    Equal to the behaviour of `mttp.read`.
    """
    with pytest.raises(ReadError, match=r"none\.jsonl does not exist"):
        mttp.check("none.jsonl")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_an_integer_where_a_double_belongs_survives_the_file(name: str):
    """
    OTLP JSON and Parquet keep the integer.
    """
    from mttp.reading import parquet

    bad = replace(span("mttp.step"), attributes={**span("mttp.step").attributes, "mttp.step.reward": 1})
    if name == "a.parquet":
        parquet.write(name, [bad])
    else:
        write(name, [bad])

    assert ["type_mismatch"] == [finding.id for finding in mttp.check(name)]


def test_arrays_in_memory_are_of_their_elements_type():
    """
    Token ids that are floats are found in memory as in files.
    """
    good = span("mttp.step")
    floats = {**good.attributes, "mttp.token.ids": np.array([1.0, 2.0])}

    assert [("type_mismatch", "violation", "span")] == found(replace(good, attributes=floats))


def test_findings_are_counted_and_the_first_places_kept():
    """
    Equal issues are one finding, with three examples.
    """
    spans = [
        replace(span("mttp.step"), span_id=f"{n:016x}", attributes={"mttp.step.reward": n})
        for n in range(1, 6)
    ]
    findings = mttp.check(Spans(*spans))
    mismatch = next(finding for finding in findings if finding.id == "type_mismatch")

    assert (5, ["1", "2", "3"]) == (mismatch.count, [example.value for example in mismatch.examples])
    assert [f"{n:016x}" for n in (1, 2, 3)] == [example.span_id for example in mismatch.examples]
    assert {"violation": 5 * 4} == findings.levels
    assert {"required_attribute_not_present": 15, "type_mismatch": 5} == findings.ids


def test_so_many_different_findings_are_listed():
    """
    After the first 1,000 findings, others are only counted, so that memory stays bounded.
    """
    good = span("mttp.step")
    odd = {f"mttp.odd_{n}": 1 for n in range(1010)}
    findings = mttp.check(Spans(replace(good, attributes={**good.attributes, **odd})))

    assert (1000, 10, 1010) == (len(findings), findings.unlisted, findings.at_least("violation"))


def test_findings_are_sorted_from_worst_to_least():
    """
    `at_least` counts findings of a level and of worse levels.
    """
    changed = {"mttp.gap.spans": 1, "mttp.odd": 1, "mttp.token.encoding": "odd"}
    findings = mttp.check(
        Spans(replace(span("mttp.step"), attributes={**span("mttp.step").attributes, **changed}))
    )

    assert ["violation", "improvement", "information"] == [finding.level for finding in findings]
    assert [1, 2, 3] == [findings.at_least(level) for level in findings.levels]
