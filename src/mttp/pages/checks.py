"""What checks found: of a recording, of the set-up, of a receiver; and what was pushed to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mttp.pages.blocks import Block, column, note, problems, state_of, table
from mttp.pages.words import count, counted, duration
from mttp.reading.jsonable import jsonable

if TYPE_CHECKING:
    from mttp.cli.doctor.findings import SetupFinding
    from mttp.reading.checking import Finding, Findings
    from mttp.workflows.probing import ProbeReport
    from mttp.workflows.pushing import Push

__all__ = [
    "check_document",
    "check_headline",
    "check_page",
    "probe_page",
    "push_document",
    "push_page",
    "setup_page",
]

_OUTCOMES: Final = {"whole": "", "changed": "changed", "lost": "lost", "refused": "refused", "unknown": "?"}


def check_document(findings: Findings) -> dict[str, Any]:
    """Return the findings as an object of plain data."""
    data: dict[str, Any] = jsonable(findings)
    return {"findings": data.pop("all")} | data


def check_headline(findings: Findings) -> str:
    """Return the numbers of findings by level, and of checked spans."""
    times = sum(findings.levels.values())
    levels = ", ".join(f"{number:,} of level {level}" for level, number in findings.levels.items())
    words = f"{count(times, 'finding')} ({levels})" if times else "no findings"
    others = f"; {count(findings.foreign, 'span')} of other libraries" if findings.foreign else ""
    return f"{words} in {count(findings.spans, 'span')}{others}"


def check_page(findings: Findings) -> Iterator[Block | None]:
    """Yield the number of findings, a row for each with the trace of its first occurrence, and problems."""
    yield note(check_headline(findings), state_of(next(iter(findings.levels), "ok")))
    columns = [column("level", kind="state"), column("finding"), column("on")]
    columns += [column("count", kind="number"), column("first_in", kind="episode"), column("message")]
    rows = [
        (
            *(finding.level, finding.id, _subject(finding), finding.count),
            *(finding.examples[0].trace_id, _sentence(finding)),
        )
        for finding in findings
    ]
    unlisted = f"… and {findings.unlisted:,} more that differ from these" if findings.unlisted else ""
    yield table("", columns, rows, unlisted)
    if findings.omissions:
        yield note(
            f"omitted: {', '.join(f'{name} ({times:,})' for name, times in findings.omissions.items())}"
        )
    yield problems(findings.problems)


def _subject(finding: Finding) -> str:
    """Return the kind and name of the signal, as in `resource` or `step`."""
    words = {"span": "", "resource": "resource", "instrumentation_scope": "scope"}
    return f"{words[finding.signal_type]} {finding.signal_name}".strip()


def _sentence(finding: Finding) -> str:
    value = finding.examples[0].value
    return finding.message if value is None else f"{finding.message} It holds {value}."


def push_document(job: Push, *, seconds: float) -> dict[str, Any]:
    """Return the result of a push for `--json`."""
    pushed = job.pushed
    omitted = [
        {"attribute": key, "reason": why, "spans": number}
        for (key, why), number in sorted(pushed.omitted.items())
    ]
    return {
        "to": repr(job.transport),
        "profile": job.transport.profile,
        "dry_run": job.dry,
        "spans": pushed.spans,
        "resumed": pushed.resumed,
        "traces": len(pushed.traces),
        **({"bytes": pushed.bytes} if job.dry else {}),
        "shifted_seconds": job.shift / 1e9,
        "seconds": seconds,
        "lost": dict(pushed.lost),
        "message": pushed.message,
        "left_out": omitted,
    }


def push_page(
    job: Push, document: Mapping[str, Any], notes: Sequence[str], trouble: Sequence[object]
) -> Iterator[Block | None]:
    """Yield what was sent where, what was omitted and lost, notes, and problems of the recording."""
    pushed = job.pushed
    verb = "would push" if job.dry else "pushed"
    what = f"{count(pushed.spans - pushed.resumed, 'span')} of {count(len(pushed.traces), 'trace')}"
    size = f", {pushed.bytes:,} bytes" if job.dry else ""
    yield note(f"{verb} {what}{size} to {document['to']}, profile {document['profile']}")
    if pushed.resumed:
        yield note(f"an earlier push sent {count(pushed.resumed, 'span')}")
    if job.shift:
        yield note(f"times are shifted by {duration(job.shift / 1e9)}")
    for item in document["left_out"]:
        yield note(f"omitted: {item['attribute']} of {count(item['spans'], 'span')} ({item['reason']})")
    for cause, number in pushed.lost.items():
        if cause == "spool_damaged":
            yield note(f"lost: {count(number, 'span')} of damaged lines of the spool ({cause})", "bad")
        else:
            yield note(f"rejected: {count(number, 'span')} ({cause}) {pushed.message}", "bad")
    yield from map(note, notes)
    yield problems(trouble)


def setup_page(findings: Sequence[SetupFinding]) -> Iterator[Block | None]:
    """Yield a row for each check of the set-up, with its advice, and the number of errors and warnings."""
    columns = [column("status", kind="state"), *map(column, ("check", "found", "advice"))]
    yield table("", columns, [(each.status, each.check, each.found, each.advice) for each in findings])
    numbers = Counter(finding.status for finding in findings)
    words = ", ".join(counted({status: numbers[status] for status in ("error", "warning")}))
    worst = next((status for status in ("error", "warning") if numbers[status]), "ok")
    yield note(words or "nothing is wrong", state_of(worst))


def probe_page(report: ProbeReport, *, everything: bool) -> Iterator[Block | None]:
    """Yield the values that a receiver changed or lost, and what to do; `everything` lists all values."""
    listed = [finding for finding in report.findings if everything or finding.outcome != "whole"]
    rows = [(finding.case, _OUTCOMES[finding.outcome], finding.detail) for finding in listed]
    yield table("", [column("value"), column("outcome", kind="state"), column("result")], rows)
    whole = sum(finding.outcome == "whole" for finding in report.findings)
    cases = count(len(report.findings), "case")
    if report.query:
        yield note(f"{whole} of {cases} arrived unchanged")
        yield note(f"{len(report.silent)} were accepted and then changed or lost")
    else:
        yield note(f"{cases} sent to {report.to}; give --query to see which arrived")
    yield note(f"logs: {report.logs}")
    yield note(f"use profile={report.profile}")
    if report.helpless:
        yield note(f"lost with every profile: {', '.join(report.helpless)}")
    yield note(f"service and run id of the probe's traces: mttp-probe, {report.run_id}")
