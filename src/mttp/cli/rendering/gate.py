"""Results of a gate as JUnit XML and as annotations of GitHub Actions, and a gate without a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from mttp.pages.words import cell, visible

if TYPE_CHECKING:
    from mttp.study import GateResult, RuleResult

__all__ = [
    "junit",
    "refusal_commands",
    "refusal_junit",
    "refusal_markdown",
    "workflow_commands",
]

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
