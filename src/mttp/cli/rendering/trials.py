"""Results of the cases of a reward spec, and of mutation testing, as text, documents and JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering.figures import SHARE_INTERVAL, share_interval
from mttp.pages.words import NOTHING, count, duration, number, printed
from mttp.reading.jsonable import jsonable
from mttp.rewards.case_runs import CaseReport, CaseResult, Instability
from mttp.rewards.mutations import Mutant, Mutation
from mttp.rewards.spec import RewardSpec

__all__ = [
    "document",
    "instability_document",
    "instability_line",
    "junit",
    "mutation_document",
    "render",
    "render_mutation",
]

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(spec: RewardSpec, report: CaseReport) -> dict[str, Any]:
    """Return the results as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "passed": not report.failed,
        "failed": report.failed,
        "cases": [_case(outcome) for outcome in report.outcomes],
        "better": [
            {"better": one.stated.better, "than": one.stated.than, "margin": one.margin, "miss": one.miss}
            for one in report.orders
        ],
        "coverage": jsonable(report.coverage),
        "instability": instability_document(report.instability),
        "agreement": jsonable(report.agreement),
    }


def instability_document(found: Instability | None) -> dict[str, Any] | None:
    """Return the instability of repeated scorings as an object of plain data; None without repeats."""
    if found is None:
        return None
    interval = share_interval(found.unstable, found.samples)
    return {
        **jsonable(found),
        "rate": found.rate,
        "interval": list(interval) if interval is not None else None,
        "interval_method": SHARE_INTERVAL if interval is not None else None,
    }


def instability_line(found: Instability, noun: str) -> str:
    """Return the instability of repeated scorings as one line."""
    counts = (
        f"unstable: {found.unstable:,} of {count(found.samples, noun)}, scored {found.repeats:,} times each"
    )
    if found.rate is None:
        return counts
    interval = share_interval(found.unstable, found.samples)
    within = f", {100 * interval[0]:.1f} to {100 * interval[1]:.1f} % ({SHARE_INTERVAL})" if interval else ""
    return f"{counts}: {100 * found.rate:.1f} %{within}"


def _case(outcome: CaseResult) -> dict[str, Any]:
    last = outcome.results[-1]
    return {
        "name": outcome.case.name,
        "kind": outcome.case.kind,
        "passed": outcome.passed,
        "misses": list(outcome.misses),
        "value": outcome.value,
        "values": list(outcome.values),
        "status": last.status,
        "verdict": last.verdict,
        "failed_checks": list(last.failed_checks),
        "error": last.error,
        "unstable": jsonable(outcome.unstable),
        "seconds": outcome.seconds,
        "components": [jsonable(grade) | {"duration": grade.duration} for grade in last.components.values()],
    }


def render(spec: RewardSpec, report: CaseReport) -> RenderableType:
    """Return the results as text: a row per case with the score of each component, then failures and gaps."""
    parts: list[RenderableType] = [Text(_headline(spec, report), style="bold")]
    if report.outcomes:
        parts += [Text(), _table(report)]
    parts += [printed(f"  {line}", style=style) if line else Text() for line, style in _notes(report)]
    return Group(*parts)


def _headline(spec: RewardSpec, report: CaseReport) -> str:
    failures = sum(not outcome.passed for outcome in report.outcomes) + sum(
        order.miss is not None for order in report.orders
    )
    tests = f"{spec.name} {spec.version}: {count(len(report.outcomes), 'case')}"
    if report.orders:
        tests += f" and {count(len(report.orders), 'order')}"
    return f"{tests}; {f'{failures:,} failed' if failures else 'all passed'}"


def _table(report: CaseReport) -> Table:
    names = [one.name for one in report.coverage]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "case", "kind"):
        table.add_column(name, no_wrap=True)
    for name in ("reward", *names):
        table.add_column(printed(name), justify="right", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for outcome in report.outcomes:
        table.add_row(
            Text("ok") if outcome.passed else Text("FAILED", style="red"),
            printed(outcome.case.name),
            outcome.case.kind,
            number(outcome.value),
            *(_component_score(outcome, name) for name in names),
            duration(outcome.seconds / len(outcome.results)),
        )
    return table


def _component_score(outcome: CaseResult, name: str) -> Text:
    """Return the score of a component; if repeats differ, the lowest and the highest."""
    grades = [result.components[name] for result in outcome.results if name in result.components]
    values = sorted(grade.value for grade in grades if grade.value is not None)
    if len(values) < len(grades) or not values:
        return Text(next((grade.status for grade in grades if grade.value is None), NOTHING), style="yellow")
    if values[0] != values[-1]:
        return Text(f"{number(values[0])} to {number(values[-1])}", style="yellow")
    return Text(number(values[0]), style="yellow" if grades[0].verdict == "fail" else "")


def _notes(report: CaseReport) -> Iterator[tuple[str, str]]:
    """Yield the lines below the table, each with its style."""
    if report.failed:
        yield "", ""
    for miss in report.failed:
        yield miss, "red"
    gaps = [f"{one.name} {one.gap}" for one in report.coverage if one.gap]
    unstable = [
        f"{outcome.case.name}: {name} scored the same input {' and '.join(map(number, _different(values)))}"
        for outcome in report.outcomes
        for name, values in outcome.unstable.items()
    ]
    if gaps or unstable:
        yield "", ""
    for line in gaps:
        yield f"{line}: no case shows anything else", "yellow"
    for line in unstable:
        yield line, "yellow"
    if report.instability is not None:
        yield "", ""
        yield instability_line(report.instability, "case"), "yellow" if report.instability.unstable else ""
    if report.agreement is not None:
        found = report.agreement
        yield "", ""
        yield (
            f"human scores agree on {number(found.accuracy and 100 * found.accuracy)} % of "
            f"{count(found.pairs, 'pair')} that they rank; Kendall's tau-b {number(found.tau_b)}, "
            f"{count(found.cases, 'case')}",
            "",
        )


def _different(values: Sequence[float | None]) -> list[float | None]:
    """Return the distinct values in ascending order, None last."""
    return sorted(set(values), key=lambda value: (value is None, value or 0.0))


def mutation_document(spec: RewardSpec, mutation: Mutation) -> dict[str, Any]:
    """Return the faults as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "failed": mutation.report.failed,
        "mutants": len(mutation.mutants),
        "caught": len(mutation.mutants) - len(mutation.survivors),
        "survivors": jsonable(mutation.survivors),
        "all": jsonable(mutation.mutants),
    }


def render_mutation(spec: RewardSpec, mutation: Mutation) -> RenderableType:
    """Return the faults as text: the number of detected faults, then the undetected ones."""
    if mutation.report.failed:
        lines = [printed(f"  {miss}", style="red") for miss in mutation.report.failed]
        headline = f"{spec.name} {spec.version}: no fault was tried, because cases fail without one"
        return Group(Text(headline, style="bold"), *lines)
    survivors = mutation.survivors
    caught = len(mutation.mutants) - len(survivors)
    headline = f"{spec.name} {spec.version}: {caught:,} of {count(len(mutation.mutants), 'fault')} detected"
    parts: list[RenderableType] = [Text(headline, style="bold")]
    if survivors:
        parts += [Text(), _survivors(survivors)]
    return Group(*parts)


def _survivors(survivors: Sequence[Mutant]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("undetected fault", "kind"):
        table.add_column(name, no_wrap=True)
    table.add_column("detected by")
    for one in survivors:
        table.add_row(printed(one.fault), one.kind, _remedy(one))
    return table


def _remedy(mutant: Mutant) -> str:
    if mutant.changed:
        return f"an expected value in {', '.join(mutant.changed[:3])}, whose reward changes"
    return f"a case in which {' and '.join(mutant.components)} makes a difference"


def junit(spec: RewardSpec, report: CaseReport) -> str:
    """Return the results as JUnit XML, with a test for each case and each order."""
    suite = ElementTree.Element("testsuite", name=f"{spec.name} {spec.version}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in jsonable(spec.identity).items():
        ElementTree.SubElement(properties, "property", name=f"spec.{name}", value=str(value))
    for outcome in report.outcomes:
        test = _test(suite, f"{spec.name}.{outcome.case.kind}", outcome.case.name, outcome.misses)
        test.set("time", f"{outcome.seconds:.6f}")
    for one in report.orders:
        name = f"{one.stated.better} over {one.stated.than}"
        _test(suite, f"{spec.name}.better", name, () if one.miss is None else (one.miss,))
    suite.set("tests", str(len(report.outcomes) + len(report.orders)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("time", f"{sum(outcome.seconds for outcome in report.outcomes):.6f}")
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _test(
    suite: ElementTree.Element, classname: str, name: str, misses: Sequence[str]
) -> ElementTree.Element:
    test = ElementTree.SubElement(suite, "testcase", classname=classname, name=name)
    if misses:
        messages = [_NOT_IN_XML.sub("\ufffd", miss) for miss in misses]
        ElementTree.SubElement(test, "failure", message=messages[0]).text = "\n".join(messages)
    return test
