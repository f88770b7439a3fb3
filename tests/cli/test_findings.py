"""Findings as documents and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reading.good import Spans, span
from reading.traces import foreign

import mttp
from mttp.pages.checks import check_document, check_headline, check_page
from mttp.reading import Problem
from mttp.reading.checking import Example, Finding, Findings


def finding(**facts: Any) -> Finding:
    """A finding in a thousand steps."""
    known: dict[str, Any] = {
        "id": "type_mismatch",
        "level": "violation",
        "message": "Attribute 'a' has type 'int'. Type should be 'double'.",
        "signal_type": "span",
        "signal_name": "step",
        "attribute": "a",
        "count": 1200,
        "examples": (Example("ab" * 16, "cd" * 8, "1"),),
    }
    return Finding(**known | facts)


PROBLEM = Problem(kind="broken_line", message="not JSON", file="a|b.jsonl", line=3)
FINDINGS = Findings(
    all=[finding(), finding(signal_type="resource", signal_name="", examples=(Example("0" * 32, "1" * 16),))],
    levels={"violation": 2400},
    ids={"type_mismatch": 2400},
    unlisted=7,
    spans=1200,
    foreign=1,
    problems=[PROBLEM],
    sources=[Path("a|b.jsonl")],
)


def test_the_headline_says_how_much_was_found_in_how_much():
    """
    Spans of others are named where there are any.
    """
    clean = mttp.check(Spans(span("mttp.step"), foreign(1)))

    assert (
        "2,400 findings (2,400 of level violation) in 1,200 spans; 1 span of other libraries"
        == check_headline(FINDINGS)
    )
    assert "no findings in 1 span; 1 span of other libraries" == check_headline(clean)


def test_without_findings_there_is_one_line():
    """
    And one for what the spans say is missing, and nothing else.
    """
    page = filter(None, check_page(mttp.check(Spans(span("mttp.step")))))

    assert ["no findings in 1 span", "omitted: text (1)"] == [block["text"] for block in page]


def test_the_document_has_every_field():
    """
    By the names that the values have in Python.
    """
    found = check_document(FINDINGS)

    assert {"type_mismatch": 2400} == found["ids"]
    assert {"trace_id": "ab" * 16, "span_id": "cd" * 8, "value": "1"} == found["findings"][0]["examples"][0]
    assert [
        {"kind": "broken_line", "message": "not JSON", "file": "a|b.jsonl", "line": 3, "trace_id": None}
    ] == (found["problems"])
