"""Results of a gate as a table, as Markdown, as JUnit XML and as annotations of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering.words import cell, count, moment, printed, visible

if TYPE_CHECKING:
    from mttp.study import GateResult, RuleResult
    from mttp.study.sample import SampleIdentity

__all__ = [
    "evidence",
    "headline",
    "junit",
    "markdown",
    "refusal_commands",
    "refusal_junit",
    "refusal_markdown",
    "render",
    "workflow_commands",
]

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
    parts += [printed(line) for line in _differing(found)]
    parts += [printed(line) for line in _identity(found)]
    parts += [printed(note) for note in found.notes]
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


def _differing(found: GateResult) -> Iterator[str]:
    """Yield what differs between the sides; what was allowed is named so."""
    for one in found.differences[:_MOST]:
        yield f"differs{', as allowed' if one.is_refused else ''}: {one}"
    if (more := len(found.differences) - _MOST) > 0:
        yield f"differs: {more:,} more, listed by --json"


def _identity(found: GateResult) -> Iterator[str]:
    """Yield which recording the baseline is, and by which rules verdicts are found."""
    yield f"candidate: {_words(found.candidate_identity)}"
    if found.identity is not None:
        yield f"baseline: {_words(found.identity)}"
    yield f"rules: {found.rules_version}, sha256 {found.rules_sha256[:16]}"


def _words(identity: SampleIdentity) -> str:
    """Return which recording a side is, in words."""
    words = [
        f"run {', '.join(identity.names or identity.runs)}" if identity.runs else "no run",
        f"revision {', '.join(one[:12] for one in identity.revisions)}" if identity.revisions else "",
        moment(identity.last_start),
        f"sha256 {identity.sha256[:16]}",
    ]
    return ", ".join(filter(None, words))


def evidence(found: GateResult) -> str:
    """Return the verdict's reasons in one line: the deciding rules, the sides and the rules."""
    return "; ".join([headline(found), *_identity(found)])


def markdown(found: GateResult) -> str:
    """For a pull request or the summary of a CI job."""
    lines = [f"**{cell(headline(found))}**", ""]
    lines += [f"- {cell(line)}" for line in _differing(found)]
    lines += [*(f"- {cell(note)}" for note in (*_identity(found), *found.notes)), ""]
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


def refusal_markdown(reason: str) -> str:
    """Return Markdown for a gate without a verdict."""
    return f"**no verdict**\n\n- {cell(reason)}"


def refusal_junit(reason: str) -> bytes:
    """Return JUnit XML for a gate without a verdict: one test case with an error."""
    suite = ElementTree.Element(
        "testsuite", name="mttp gate", tests="1", failures="0", skipped="0", errors="1"
    )
    case = ElementTree.SubElement(suite, "testcase", classname="mttp.gate", name="verdict")
    ElementTree.SubElement(case, "error", message=_xml(reason)).text = _xml(reason)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def refusal_commands(reason: str) -> list[str]:
    """Return the workflow command of GitHub Actions for a gate without a verdict."""
    return [f"::error title=mttp gate%3A no verdict::{_escaped(reason)}"]


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
