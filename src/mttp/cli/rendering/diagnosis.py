"""Diagnoses of training runs as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mttp.cli.rendering.problems import markdown_warnings, warnings
from mttp.cli.rendering.words import cell, count, printed

if TYPE_CHECKING:
    from mttp.study import Diagnosis, DiagnosisFinding

__all__ = ["headline", "markdown", "render"]

_STYLES = {"high": "bold red", "medium": "yellow", "low": "cyan"}
_INDENT = 2


def headline(found: Diagnosis) -> str:
    """The findings by severity in one sentence."""
    counts = [
        f"{number:,} {severity}"
        for severity in _STYLES
        if (number := sum(one.severity == severity for one in found.findings))
    ]
    what = f"{count(len(found.findings), 'finding')} ({', '.join(counts)})" if counts else "no findings"
    return (
        f"{what}; {count(len(found.judged), 'detector')} found nothing, "
        f"{len(found.missing):,} could not judge"
    )


def render(found: Diagnosis, *, everything: bool = False) -> RenderableType:
    """For a terminal: findings by severity, then the reading, then what could not be judged, in one line."""
    parts: list[RenderableType] = [printed(_subject(found)), *warnings(found.sampled)]
    parts.append(Text(headline(found), style="bold"))
    for one in found.findings:
        parts += [Text(), *_finding(one)]
    parts += [Text(), Text("reading", style="bold"), *map(_indented, _reading(found))]
    if found.missing and everything:
        parts += [Text(), Text("could not be judged", style="bold")]
        parts += [_indented(f"{one.kind}: {one.reason}") for one in found.missing]
    if found.judged and everything:
        parts += [Text(), Text("nothing found", style="bold")]
        parts += [_indented(f"{one.kind}: {one.evidence}") for one in found.judged]
    if found.inapplicable and everything:
        parts += [Text(), printed(f"does not apply: {', '.join(found.inapplicable)}")]
    if found.missing and not everything:
        names = ", ".join(one.kind for one in found.missing)
        parts += [Text(), printed(f"could not be judged: {names} (--all says why)")]
    parts += [printed(f"note: {line}") for line in _notes(found)]
    parts += [Padding(printed(f"problem: {one}", style="red"), 0) for one in found.problems[:5]]
    return Group(*parts)


def _notes(found: Diagnosis) -> Iterator[str]:
    """The trends of the components, where nothing says which of them is the quality."""
    for one in found.missing:
        if one.kind == "reward_hacking" and "--quality" in one.reason:
            yield one.reason


def markdown(found: Diagnosis, *, everything: bool = False) -> str:
    """For a pull request or the summary of a CI job."""
    lines = [f"**{cell(headline(found))}**", *markdown_warnings(found.sampled), "", cell(_subject(found)), ""]
    if found.findings:
        lines += ["| severity | finding | evidence | how sure | advice |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {one.severity} | {one.kind} | {cell(one.evidence)} | {cell(_how_sure(one))} "
            f"| {cell(one.advice)} |"
            for one in found.findings
        ]
        lines.append("")
    lines += [*(f"- {cell(line)}" for line in _reading(found)), ""]
    if everything:
        lines += [f"- not judged: {one.kind}: {cell(one.reason)}" for one in found.missing]
        lines += [f"- nothing found: {one.kind}: {cell(one.evidence)}" for one in found.judged]
        lines += [f"- does not apply: {kind}" for kind in found.inapplicable]
    elif found.missing:
        lines.append(
            f"- could not be judged: {', '.join(one.kind for one in found.missing)} (`--all` says why)"
        )
    lines += [f"- {cell(line)}" for line in _notes(found)]
    return "\n".join(lines).rstrip()


def _subject(found: Diagnosis) -> str:
    quality = f"quality: {found.quality}" if found.quality is not None else "no quality recorded"
    counts = f"{count(found.episodes, 'episode')}, {count(found.updates, 'update')}"
    return f"{found.source}: {counts}, {quality}"


def _finding(one: DiagnosisFinding) -> Iterator[RenderableType]:
    yield Text.assemble((one.severity, _STYLES[one.severity]), f"  {one.kind}")
    yield _indented(one.evidence)
    yield _indented(f"how sure: {_how_sure(one)}")
    if one.episodes:
        yield _indented(f"episodes: {' '.join(trace_id[:8] for trace_id in one.episodes)}")
    yield _indented(f"usual fix: {one.advice}")


def _how_sure(one: DiagnosisFinding) -> str:
    return f"{one.confidence}; in {one.false_alarm_rate:.1%} of healthy runs"


def _reading(found: Diagnosis) -> Iterator[str]:
    reading = found.reading
    yield reading.validation_trend
    yield reading.reward_trend
    rows = [row for row in reading.table if row[1] == reading.reward]
    if reading.validation not in [row[0] for row in rows]:
        yield f"validation {reading.validation} x reward {reading.reward}: {reading.meaning}"
    for validation, reward, meaning, action in rows:
        mark = "-> " if validation == reading.validation else "   "
        yield f"{mark}validation {validation} x reward {reward}: {action}, {meaning}"
    yield found.advice


def _indented(text: str) -> RenderableType:
    return Padding(printed(text), (0, 0, 0, _INDENT), expand=False)
