"""Results for CI systems: JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from mttp.model.printable import visible
from mttp.reading.jsonable import jsonable

if TYPE_CHECKING:
    from mttp.rewards.case_runs import CaseReport
    from mttp.rewards.spec import RewardSpec
    from mttp.study import GateResult, RuleResult

__all__ = [
    "cases_junit",
    "gate_junit",
    "refusal_command",
    "refusal_junit",
    "workflow_commands",
]

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gate_junit(result: GateResult, *, strict: bool) -> bytes:
    """Return a test case per rule; an inconclusive one is skipped, or fails under `strict`."""
    suite = ElementTree.Element("testsuite", name="mttp gate")
    for rule in result.rules:
        case = _case(suite, f"mttp.gate.{rule.kind}", rule.name)
        if rule.verdict == "pass":
            ElementTree.SubElement(case, "system-out").text = _xml(rule.evidence)
        else:
            tag = "failure" if strict or rule.verdict == "fail" else "skipped"
            _problem(case, tag, f"{rule.verdict}: {_evidence(rule)}", _evidence(rule))
    return _document(suite)


def refusal_junit(reason: str) -> bytes:
    """Return one test case with an error, for a gate without a verdict."""
    suite = ElementTree.Element("testsuite", name="mttp gate")
    _problem(_case(suite, "mttp.gate", "verdict"), "error", reason, reason)
    return _document(suite)


def cases_junit(spec: RewardSpec, report: CaseReport) -> bytes:
    """Return a test for each case and each order of a spec."""
    suite = ElementTree.Element("testsuite", name=f"{spec.name} {spec.version}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in jsonable(spec.identity).items():
        ElementTree.SubElement(properties, "property", name=f"spec.{name}", value=str(value))
    for outcome in report.outcomes:
        case = _case(suite, f"{spec.name}.{outcome.case.kind}", outcome.case.name)
        case.set("time", f"{outcome.seconds:.6f}")
        if outcome.misses:
            _problem(case, "failure", outcome.misses[0], "\n".join(outcome.misses))
    for order in report.orders:
        case = _case(suite, f"{spec.name}.better", f"{order.stated.better} over {order.stated.than}")
        if order.miss is not None:
            _problem(case, "failure", order.miss, order.miss)
    suite.set("time", f"{sum(outcome.seconds for outcome in report.outcomes):.6f}")
    return _document(suite)


def _case(suite: ElementTree.Element, classname: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_xml(classname), name=_xml(name))


def _problem(case: ElementTree.Element, tag: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, tag, message=_xml(message)).text = _xml(text)


def _document(suite: ElementTree.Element) -> bytes:
    """Return a suite with the numbers of its tests as XML."""
    suite.set("tests", str(len(suite.findall("testcase"))))
    for tag, name in (("failure", "failures"), ("skipped", "skipped"), ("error", "errors")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    ElementTree.indent(suite)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _xml(text: str) -> str:
    """Return text without the characters that XML 1.0 has no place for."""
    return _NOT_XML.sub("\ufffd", visible(text, lines=True))


def workflow_commands(result: GateResult, *, strict: bool) -> Iterator[str]:
    """Yield a command of GitHub Actions for each rule: an error if it failed, else a warning."""
    for rule in result.rules:
        if rule.verdict != "pass":
            level = "error" if strict or rule.verdict == "fail" else "warning"
            title = _escaped(f"mttp gate: {rule.name}").replace(":", "%3A").replace(",", "%2C")
            yield f"::{level} title={title}::{_escaped(f'{rule.verdict}: {_evidence(rule)}')}"


def refusal_command(reason: str) -> str:
    """Return the command of GitHub Actions for a gate without a verdict."""
    return f"::error title=mttp gate%3A no verdict::{_escaped(reason)}"


def _evidence(rule: RuleResult) -> str:
    examples = ", ".join(trace_id[:8] for trace_id in rule.episodes)
    return f"{rule.evidence}; for example {examples}" if examples else rule.evidence


def _escaped(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
