"""The cases of a reward spec as text, as documents and as JUnit XML: what they show, and what they miss."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.report.figures import SHARE_INTERVAL, share_interval
from mttp.cli.report.words import NOTHING, count, duration, number, printed
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


def document(spec: RewardSpec, trial: CaseReport) -> dict[str, Any]:
    """The outcomes as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "passed": not trial.failed,
        "failed": trial.failed,
        "cases": [_case(outcome) for outcome in trial.outcomes],
        "better": [
            {"better": one.stated.better, "than": one.stated.than, "margin": one.margin, "miss": one.miss}
            for one in trial.orders
        ],
        "coverage": jsonable(trial.coverage),
        "instability": instability_document(trial.instability),
        "agreement": jsonable(trial.agreement),
    }


def instability_document(found: Instability | None) -> dict[str, Any] | None:
    """How much differs from time to time as an object of plain data; None where nothing was repeated."""
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
    """How much differs from time to time, in a line."""
    said = (
        f"unstable: {found.unstable:,} of {count(found.samples, noun)}, scored {found.repeats:,} times each"
    )
    if found.rate is None:
        return said
    interval = share_interval(found.unstable, found.samples)
    within = f", {100 * interval[0]:.1f} to {100 * interval[1]:.1f} % ({SHARE_INTERVAL})" if interval else ""
    return f"{said}: {100 * found.rate:.1f} %{within}"


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


def render(spec: RewardSpec, trial: CaseReport) -> RenderableType:
    """The outcomes as text: a row for each case with what each component gave, then what is lacking."""
    parts: list[RenderableType] = [Text(_headline(spec, trial), style="bold")]
    if trial.outcomes:
        parts += [Text(), _table(trial)]
    parts += [printed(f"  {line}", style=style) if line else Text() for line, style in _notes(trial)]
    return Group(*parts)


def _headline(spec: RewardSpec, trial: CaseReport) -> str:
    failures = sum(not outcome.passed for outcome in trial.outcomes) + sum(
        rivalry.miss is not None for rivalry in trial.orders
    )
    said = f"{spec.name} {spec.version}: {count(len(trial.outcomes), 'case')}"
    if trial.orders:
        said += f", {count(len(trial.orders), 'order')} among them"
    return f"{said}; {f'{failures:,} failed' if failures else 'all as expected'}"


def _table(trial: CaseReport) -> Table:
    names = [one.name for one in trial.coverage]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "case", "kind"):
        table.add_column(name, no_wrap=True)
    for name in ("reward", *names):
        table.add_column(printed(name), justify="right", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for outcome in trial.outcomes:
        table.add_row(
            Text("ok") if outcome.passed else Text("FAILED", style="red"),
            printed(outcome.case.name),
            outcome.case.kind,
            number(outcome.value),
            *(_given(outcome, name) for name in names),
            duration(outcome.seconds / len(outcome.results)),
        )
    return table


def _given(outcome: CaseResult, name: str) -> Text:
    """What a component gave, of several times the lowest and the highest."""
    grades = [result.components[name] for result in outcome.results if name in result.components]
    values = sorted(grade.value for grade in grades if grade.value is not None)
    if len(values) < len(grades) or not values:
        return Text(next((grade.status for grade in grades if grade.value is None), NOTHING), style="yellow")
    if values[0] != values[-1]:
        return Text(f"{number(values[0])} to {number(values[-1])}", style="yellow")
    return Text(number(values[0]), style="yellow" if grades[0].verdict == "fail" else "")


def _notes(trial: CaseReport) -> Iterator[tuple[str, str]]:
    """Lines below the table, and how they look."""
    if trial.failed:
        yield "", ""
    for miss in trial.failed:
        yield miss, "red"
    gaps = [f"{one.name} {one.gap}" for one in trial.coverage if one.gap]
    unstable = [
        f"{outcome.case.name}: {name} gave the same input {' and '.join(map(number, _different(values)))}"
        for outcome in trial.outcomes
        for name, values in outcome.unstable.items()
    ]
    if gaps or unstable:
        yield "", ""
    for line in gaps:
        yield f"{line}: no case shows it otherwise", "yellow"
    for line in unstable:
        yield line, "yellow"
    if trial.instability is not None:
        yield "", ""
        yield instability_line(trial.instability, "case"), "yellow" if trial.instability.unstable else ""
    if trial.agreement is not None:
        found = trial.agreement
        yield "", ""
        yield (
            f"people agree on {number(found.accuracy and 100 * found.accuracy)} % of "
            f"{count(found.pairs, 'pair')} that they tell apart; Kendall's tau-b {number(found.tau_b)}, "
            f"{count(found.cases, 'case')}",
            "",
        )


def _different(values: Sequence[float | None]) -> list[float | None]:
    """The different values, lowest first, and nothing last."""
    return sorted(set(values), key=lambda value: (value is None, value or 0.0))


def mutation_document(spec: RewardSpec, mutation: Mutation) -> dict[str, Any]:
    """The faults as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "failed": mutation.report.failed,
        "mutants": len(mutation.mutants),
        "caught": len(mutation.mutants) - len(mutation.survivors),
        "survivors": jsonable(mutation.survivors),
        "all": jsonable(mutation.mutants),
    }


def render_mutation(spec: RewardSpec, mutation: Mutation) -> RenderableType:
    """The faults as text: how many were noticed, and those that were not."""
    if mutation.report.failed:
        lines = [printed(f"  {miss}", style="red") for miss in mutation.report.failed]
        said = f"{spec.name} {spec.version}: its cases fail without any fault, so none was tried"
        return Group(Text(said, style="bold"), *lines)
    survivors = mutation.survivors
    caught = len(mutation.mutants) - len(survivors)
    said = f"{spec.name} {spec.version}: {caught:,} of {count(len(mutation.mutants), 'fault')} noticed"
    parts: list[RenderableType] = [Text(said, style="bold")]
    if survivors:
        parts += [Text(), _survivors(survivors)]
    return Group(*parts)


def _survivors(survivors: Sequence[Mutant]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("not detected", "fault"):
        table.add_column(name, no_wrap=True)
    table.add_column("what would")
    for one in survivors:
        table.add_row(printed(one.fault), one.kind, _remedy(one))
    return table


def _remedy(mutant: Mutant) -> str:
    if mutant.changed:
        return f"an expected value in {', '.join(mutant.changed[:3])}, whose reward it changes"
    return f"a case in which {' and '.join(mutant.components)} makes a difference"


def junit(spec: RewardSpec, trial: CaseReport) -> str:
    """The outcomes as JUnit XML; each case is a test, and so is each order among them."""
    suite = ElementTree.Element("testsuite", name=f"{spec.name} {spec.version}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in jsonable(spec.identity).items():
        ElementTree.SubElement(properties, "property", name=f"spec.{name}", value=str(value))
    for outcome in trial.outcomes:
        test = _test(suite, f"{spec.name}.{outcome.case.kind}", outcome.case.name, outcome.misses)
        test.set("time", f"{outcome.seconds:.6f}")
    for one in trial.orders:
        name = f"{one.stated.better} over {one.stated.than}"
        _test(suite, f"{spec.name}.better", name, () if one.miss is None else (one.miss,))
    suite.set("tests", str(len(trial.outcomes) + len(trial.orders)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("time", f"{sum(outcome.seconds for outcome in trial.outcomes):.6f}")
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _test(
    suite: ElementTree.Element, classname: str, name: str, misses: Sequence[str]
) -> ElementTree.Element:
    test = ElementTree.SubElement(suite, "testcase", classname=classname, name=name)
    if misses:
        said = [_NOT_IN_XML.sub("\ufffd", miss) for miss in misses]
        ElementTree.SubElement(test, "failure", message=said[0]).text = "\n".join(said)
    return test
