"""Findings as documents, as text and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reading.good import Spans, span
from reading.traces import foreign
from rich.console import Console

import mttp
from mttp.cli.rendering.findings import document, headline, markdown, render
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


def text_of(findings: Findings) -> list[str]:
    """What is printed, without colour."""
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(render(findings))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_headline_says_how_much_was_found_in_how_much():
    """
    Spans of others are named where there are any.
    """
    clean = mttp.check(Spans(span("mttp.step"), foreign(1)))

    assert "2,400 findings (2,400 of level violation) in 1,200 spans; 1 span of other libraries" == headline(
        FINDINGS
    )
    assert "no findings in 1 span; 1 span of other libraries" == headline(clean)


def test_a_finding_is_a_row():
    """
    With what it is about, how often it was found, what the first one holds, and where that is.
    """
    lines = text_of(FINDINGS)
    message = "Attribute 'a' has type 'int'. Type should be 'double'."

    assert ["violation", "type_mismatch", "step", "1,200"] == lines[3].split()[:4]
    assert f"{message} It holds 1." in lines[3]
    assert "abababab" == lines[3].split()[-1]
    assert ["type_mismatch", "resource", "1,200"] == lines[4].split()[1:4]
    assert ["… and 7 more that differ from these", "", "1 problem:", "  a|b.jsonl:3: not JSON"] == lines[5:]


def test_without_findings_there_is_one_line():
    """
    And one for what the spans say is missing, and nothing else.
    """
    assert ["no findings in 1 span", "omitted: text (1)"] == text_of(mttp.check(Spans(span("mttp.step"))))


def test_markdown_is_a_table():
    """
    What was recorded can't break out of its cell.
    """
    odd = finding(examples=(Example("ab" * 16, "cd" * 8, '"a|b\n[x](y) <b>*"'),))
    lines = markdown(Findings(all=[odd], levels={"violation": 1}, problems=[PROBLEM])).splitlines()

    assert "| --- | --- | --- | ---: | --- | --- |" == lines[3]
    assert '"a\\|b⏎\\[x\\](y) \\<b\\>\\*"' in lines[4]
    assert ["", "**1 problem**", "", "- a\\|b.jsonl:3: not JSON"] == lines[5:]


def test_the_document_has_every_field():
    """
    By the names that the values have in Python.
    """
    found = document(FINDINGS)

    assert {"type_mismatch": 2400} == found["ids"]
    assert {"trace_id": "ab" * 16, "span_id": "cd" * 8, "value": "1"} == found["findings"][0]["examples"][0]
    assert [
        {"kind": "broken_line", "message": "not JSON", "file": "a|b.jsonl", "line": 3, "trace_id": None}
    ] == (found["problems"])
