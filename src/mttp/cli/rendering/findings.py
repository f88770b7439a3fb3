"""Findings of a check as a document, as text and as Markdown."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering.problems import problem_lines
from mttp.pages.words import cell, count, printed
from mttp.reading.checking import Finding, Findings
from mttp.reading.jsonable import jsonable

__all__ = ["document", "headline", "markdown", "render"]

_STYLES = {"violation": "red", "improvement": "yellow", "information": ""}
_ID_DIGITS = 8


def document(findings: Findings) -> dict[str, Any]:
    """Return the findings as an object of plain data."""
    found: dict[str, Any] = jsonable(findings)
    return {"findings": found.pop("all")} | found


def headline(findings: Findings) -> str:
    """Return the numbers of findings by level, and of checked spans."""
    times = sum(findings.levels.values())
    levels = ", ".join(f"{number:,} of level {level}" for level, number in findings.levels.items())
    found = f"{count(times, 'finding')} ({levels})" if times else "no findings"
    others = f"; {count(findings.foreign, 'span')} of other libraries" if findings.foreign else ""
    return f"{found} in {count(findings.spans, 'span')}{others}"


def render(findings: Findings) -> RenderableType:
    """Return the findings as text: a row for each, with the trace of its first occurrence."""
    parts: list[RenderableType] = [Text(headline(findings), style="bold")]
    if findings.all:
        parts += [Text(), _table(findings)]
    if findings.unlisted:
        parts.append(Text(_unlisted(findings)))
    if findings.omissions:
        parts.append(printed(_omissions(findings)))
    if findings.problems:
        parts += [Text(), problem_lines(findings.problems)]
    return Group(*parts)


def _table(findings: Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("level", "finding", "on"):
        table.add_column(name, no_wrap=True)
    table.add_column("count", justify="right")
    table.add_column("message")
    table.add_column("first in", no_wrap=True)
    for finding in findings:
        table.add_row(
            Text(finding.level, style=_STYLES[finding.level]),
            printed(finding.id),
            printed(_subject(finding)),
            Text(f"{finding.count:,}"),
            printed(_sentence(finding)),
            printed(finding.examples[0].trace_id[:_ID_DIGITS]),
        )
    return table


def _subject(finding: Finding) -> str:
    """Return the kind and name of the signal, as in `resource` or `step`."""
    words = {"span": "", "resource": "resource", "instrumentation_scope": "scope"}
    return f"{words[finding.signal_type]} {finding.signal_name}".strip()


def _sentence(finding: Finding) -> str:
    value = finding.examples[0].value
    return finding.message if value is None else f"{finding.message} It holds {value}."


def _unlisted(findings: Findings) -> str:
    return f"… and {findings.unlisted:,} more that differ from these"


def _omissions(findings: Findings) -> str:
    return "omitted: " + ", ".join(f"{name} ({times:,})" for name, times in findings.omissions.items())


def markdown(findings: Findings) -> str:
    """Return the findings as Markdown, for a CI job summary or a comment."""
    lines = [f"**{headline(findings)}**"]
    if findings.all:
        lines += [
            "",
            "| level | finding | on | count | message | first in |",
            "| --- | --- | --- | ---: | --- | --- |",
        ]
        lines += [_row(finding) for finding in findings]
    if findings.unlisted:
        lines += ["", _unlisted(findings)]
    if findings.omissions:
        lines += ["", cell(_omissions(findings))]
    if findings.problems:
        lines += ["", f"**{count(len(findings.problems), 'problem')}**", ""]
        lines += [f"- {cell(str(problem))}" for problem in findings.problems]
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    first = finding.examples[0].trace_id[:_ID_DIGITS]
    cells = (
        finding.level,
        f"`{finding.id}`",
        _subject(finding),
        f"{finding.count:,}",
        _sentence(finding),
        first,
    )
    return f"| {' | '.join(map(cell, cells))} |"
