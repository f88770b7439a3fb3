"""Results of a gate as a table, as Markdown, as JUnit XML and as annotations of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering.words import cell, count, printed, visible

if TYPE_CHECKING:
    from mttp.study import GateResult, RuleResult

__all__ = ["headline", "junit", "markdown", "render", "workflow_commands"]

_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
_OVERALL = {"promote": "bold green", "reject": "bold red", "inconclusive": "bold yellow"}
_MOST = 10
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def headline(found: GateResult) -> str:
    """The verdict, and the rules that decided it."""
    deciding = {"reject": "fail", "inconclusive": "inconclusive"}.get(found.verdict)
    names = [rule.name for rule in found.rules if rule.verdict == deciding]
    if not names:
        return f"{found.verdict}: {count(len(found.rules), 'rule')} passed"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{found.verdict}: {', '.join(names[:3])}{more}"


def render(found: GateResult) -> RenderableType:
    """For a terminal: the verdict, then a row for each rule."""
    against = "" if found.baseline is None else f" against {found.baseline}"
    parts: list[RenderableType] = [printed(f"{found.candidate}{against}")]
    parts += [printed(f"differs: {one}") for one in found.differences[:_MOST]]
    if more := len(found.differences) - _MOST:
        parts += [Text(f"differs: {more:,} more, listed by --json")] if more > 0 else []
    parts += [Text(note) for note in found.notes]
    parts += [Text(), printed(headline(found), style=_OVERALL[found.verdict]), Text()]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("verdict", "rule", "evidence"):
        table.add_column(name, no_wrap=name == "verdict")
    for rule in found.rules:
        table.add_row(
            Text(rule.verdict, style=_STYLES[rule.verdict]), printed(rule.name), printed(_evidence(rule))
        )
    parts.append(table)
    parts += [printed(f"problem: {problem}", style="red") for problem in found.problems[:_MOST]]
    return Group(*parts)


def markdown(found: GateResult) -> str:
    """For a pull request or the summary of a CI job."""
    lines = [f"**{cell(headline(found))}**", ""]
    lines += [f"- differs: {cell(str(one))}" for one in found.differences[:_MOST]]
    lines += [*(f"- {cell(note)}" for note in found.notes), ""]
    lines += ["| verdict | rule | evidence |", "| --- | --- | --- |"]
    lines += [f"| {rule.verdict} | {cell(rule.name)} | {cell(_evidence(rule))} |" for rule in found.rules]
    lines += ["", *(f"- problem: {cell(problem)}" for problem in found.problems[:_MOST])]
    return "\n".join(lines).rstrip()


def _evidence(rule: RuleResult) -> str:
    examples = f"; for example {', '.join(one[:8] for one in rule.episodes)}" if rule.episodes else ""
    return f"{rule.evidence}{examples}"


def junit(found: GateResult, *, strict: bool) -> bytes:
    """JUnit XML: a test case per rule; an inconclusive one is skipped, or fails under `strict`."""
    failing = {"fail", "inconclusive"} if strict else {"fail"}
    suite = ElementTree.Element(
        "testsuite",
        name="mttp gate",
        tests=str(len(found.rules)),
        failures=str(sum(rule.verdict in failing for rule in found.rules)),
        skipped=str(sum(rule.verdict not in {"pass", *failing} for rule in found.rules)),
        errors="0",
    )
    for rule in found.rules:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"mttp.gate.{rule.kind}", name=_xml(rule.name)
        )
        if rule.verdict != "pass":
            tag = "failure" if rule.verdict in failing else "skipped"
            made = ElementTree.SubElement(case, tag, message=_xml(f"{rule.verdict}: {_evidence(rule)}"))
            made.text = _xml(_evidence(rule))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(rule.evidence)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 has no place for."""
    return _NOT_XML.sub("�", visible(text))


def workflow_commands(found: GateResult, *, strict: bool) -> list[str]:
    """Workflow commands of GitHub Actions: an error for each failed rule, a warning for inconclusive ones."""
    return [*_commands(found, strict=strict)]


def _commands(found: GateResult, *, strict: bool) -> Iterator[str]:
    for rule in found.rules:
        if rule.verdict != "pass":
            level = "error" if strict or rule.verdict == "fail" else "warning"
            title = _escaped(f"mttp gate: {rule.name}").replace(":", "%3A").replace(",", "%2C")
            yield f"::{level} title={title}::{_escaped(f'{rule.verdict}: {_evidence(rule)}')}"


def _escaped(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
