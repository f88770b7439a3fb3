"""The results of compare, gate and diagnose as pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mttp.pages.blocks import (
    Block,
    column,
    fact,
    facts,
    findings,
    note,
    problems,
    section,
    state_of,
    table,
    warnings,
)
from mttp.pages.words import count, moment, number

if TYPE_CHECKING:
    from mttp.model.statistics.aggregates import RunAggregates
    from mttp.study import Comparison, Diagnosis, GateResult, MetricComparison
    from mttp.study.sample import SampleIdentity
    from mttp.tables.summary import RecordedVerdict

_SEVERITIES = ("high", "medium", "low")


def comparison_page(comparison: Comparison) -> Iterator[Block | None]:
    """Yield what differs between the sides first, then the verdict, metrics, slices and flips."""
    first = comparison.metrics[0]
    yield note(f"{comparison.candidate} against {comparison.base}")
    yield _differences(comparison) or note("nothing else is known to differ")
    yield from map(note, comparison.notes)
    yield note(comparison_headline(comparison), state_of(comparison.verdict))
    yield _metrics("Metrics", "metric", {metric.name: metric for metric in comparison.metrics})
    yield _metrics(f"{first.name} by slice", "slice", comparison.slices)
    yield _flips(comparison)
    yield problems(comparison.problems)


def comparison_headline(comparison: Comparison) -> str:
    """Return the verdict in one sentence."""
    first = comparison.metrics[0]
    within = (
        "" if first.interval is None else f", {first.confidence:.0%} interval {_interval(first.interval)}"
    )
    effect = "no effect known" if first.effect is None else f"{first.effect:+.4g}{within}"
    return f"{first.name}: {comparison.verdict} ({effect})" + (f": {first.reason}" if first.reason else "")


def _differences(result: Comparison | GateResult) -> Block | None:
    columns = [column("kind"), column("name"), column("base"), column("candidate"), column("allowed")]
    rows = [
        (
            difference.kind,
            difference.name,
            difference.base or "none",
            difference.candidate or "none",
            "as asked" if difference.is_refused else None,
        )
        for difference in result.differences
    ]
    return table("What differs between the runs", columns, rows)


def _metrics(title: str, name: str, metrics: Mapping[str, MetricComparison]) -> Block | None:
    columns = [
        column(name),
        column("verdict", kind="state"),
        column("effect", help="candidate - base"),
        column("interval", help="the confidence interval of the effect"),
        column("base", kind="number"),
        column("candidate", kind="number"),
        column("p", kind="number", help="two-sided, corrected by Holm for all metrics but the first"),
        column("n"),
        column("detectable", kind="number", help="the least effect that this sample would show, power 80 %"),
        column("missing"),
        column("worst_case", help="the effect and its interval, with the missing values against the claim"),
        column("interquartile_means", help="the means of the middle half of the runs, and their interval"),
        column("better_runs", help="the probability that a run of the candidate is better"),
        column("method"),
    ]
    rows = [
        (
            *(key, metric.verdict, None if metric.effect is None else f"{metric.effect:+.4g}"),
            metric.interval and _interval(metric.interval),
            *(metric.base, metric.candidate, metric.p_corrected),
            "{:,} and {:,}".format(*metric.n),
            metric.detectable,
            "{:,} and {:,}".format(*metric.missing) if any(metric.missing) else None,
            metric.worst_case_text or None,
            *_over_runs(metric.over_runs),
            metric.reason or metric.method,
        )
        for key, metric in metrics.items()
    ]
    return table(title, columns, rows)


def _interval(bounds: tuple[float, float]) -> str:
    return "{:+.4g} to {:+.4g}".format(*bounds)


def _over_runs(runs: RunAggregates | None) -> tuple[str | None, str | None]:
    if runs is None:
        return None, None
    base, candidate = runs.interquartile_means
    means = f"{number(base)} -> {number(candidate)}, {_interval(runs.interval)}"
    return means, "{:.0%} ({:.0%} to {:.0%})".format(runs.improvement, *runs.improvement_interval)


def _flips(comparison: Comparison) -> Block | None:
    columns = [
        column("task"),
        column("base", "base success", "share"),
        column("candidate", "candidate success", "share"),
        column("change", kind="state"),
        column("base_episode", "episode of the base"),
        column("episode", kind="episode"),
    ]
    rows = [
        (
            *(flip.task, flip.base, flip.candidate),
            "gained" if flip.gained else "lost",
            *(flip.base_episode, flip.candidate_episode),
        )
        for flip in sorted(comparison.flips, key=lambda flip: flip.gained)
    ]
    gained = sum(flip.gained for flip in comparison.flips)
    counts = f"{count(gained, 'task')} gained, {count(len(rows) - gained, 'task')} lost"
    return table("Tasks that changed sides", columns, rows, counts)


def gate_page(result: GateResult) -> Iterator[Block | None]:
    """Yield what differs between the sides, the verdict, and each rule with its evidence."""
    against = "" if result.baseline is None else f" against {result.baseline}"
    yield note(f"{result.candidate}{against}")
    yield _differences(result)
    yield from map(note, (*_identity(result), *result.notes))
    yield note(gate_headline(result), state_of(result.verdict))
    columns = [column("verdict", kind="state"), column("rule"), column("evidence")]
    columns.append(column("episodes", kind="episodes"))
    rows = [(rule.verdict, rule.name, rule.evidence, " ".join(rule.episodes[:10])) for rule in result.rules]
    yield table("Promotion rules", columns, rows)
    yield problems(result.problems)


def gate_headline(result: GateResult) -> str:
    """Return the verdict, and the rules that decided it."""
    deciding = {"reject": "fail", "inconclusive": "inconclusive"}.get(result.verdict)
    names = [rule.name for rule in result.rules if rule.verdict == deciding]
    if not names:
        return f"{result.verdict}: {count(len(result.rules), 'rule')} passed"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{result.verdict}: {', '.join(names[:3])}{more}"


def gate_evidence(result: GateResult) -> str:
    """Return the verdict's reasons in one line: the deciding rules, the sides and the rules."""
    return "; ".join([gate_headline(result), *_identity(result)])


def _identity(result: GateResult) -> Iterator[str]:
    """Yield which recording each side is, and by which rules verdicts are found."""
    yield f"candidate: {_words(result.candidate_identity)}"
    if result.identity is not None:
        yield f"baseline: {_words(result.identity)}"
    yield f"rules: {result.rules_version}, sha256 {result.rules_sha256[:16]}"


def _words(identity: SampleIdentity) -> str:
    words = [
        f"run {', '.join(identity.names or identity.runs)}" if identity.runs else "no run",
        f"revision {', '.join(each[:12] for each in identity.revisions)}" if identity.revisions else "",
        moment(identity.last_start),
        f"sha256 {identity.sha256[:16]}",
    ]
    return ", ".join(filter(None, words))


def diagnosis_page(diagnosis: Diagnosis) -> Iterator[Block | None]:
    """Yield the findings with evidence and advice, the reading of the curves, and the other detectors."""
    quality = "no quality recorded" if diagnosis.quality is None else f"quality: {diagnosis.quality}"
    counts = f"{count(diagnosis.episodes, 'episode')}, {count(diagnosis.updates, 'update')}"
    yield from warnings(diagnosis.sampled)
    yield note(f"{diagnosis.source}: {counts}, {quality}")
    worst = next((finding.severity for finding in diagnosis.findings), "")
    yield note(diagnosis_headline(diagnosis), state_of(worst) if worst or diagnosis.missing else "good")
    items = [
        {
            "kind": finding.kind,
            "severity": finding.severity,
            "state": state_of(finding.severity),
            "evidence": f"{finding.evidence} ({finding.confidence}; in {finding.false_alarm_rate:.1%} of "
            "healthy runs)",
            "advice": finding.advice,
            "episodes": list(finding.episodes[:10]),
        }
        for finding in diagnosis.findings
    ]
    yield findings(items, "The worst first; a finding is a reason to look, not a proof.")
    reading = diagnosis.reading
    yield facts(
        [
            fact("validation", reading.validation, detail=reading.validation_trend),
            fact("reward", reading.reward, detail=reading.reward_trend),
            fact("together", reading.action, detail=reading.meaning),
        ]
    )
    yield note(diagnosis.advice, "bad" if diagnosis.should_stop else "plain")
    if diagnosis.missing:
        yield note(f"could not be judged: {', '.join(finding.kind for finding in diagnosis.missing)}")
    yield from (
        note(f"note: {finding.reason}")
        for finding in diagnosis.missing
        if finding.kind == "reward_hacking" and "--quality" in finding.reason
    )
    yield _detectors(diagnosis)
    yield problems(diagnosis.problems)


def diagnosis_headline(diagnosis: Diagnosis) -> str:
    """Return the findings by severity in one sentence."""
    by_severity = {
        severity: sum(finding.severity == severity for finding in diagnosis.findings)
        for severity in _SEVERITIES
    }
    counts = ", ".join(f"{number:,} {severity}" for severity, number in by_severity.items() if number)
    what = f"{count(len(diagnosis.findings), 'finding')} ({counts})" if counts else "no findings"
    judged = count(len(diagnosis.judged), "detector")
    return f"{what}; {judged} found nothing, {len(diagnosis.missing):,} could not judge"


def _detectors(diagnosis: Diagnosis) -> Block | None:
    rows = [("not judged", finding.kind, finding.reason) for finding in diagnosis.missing]
    rows += [("nothing found", finding.kind, finding.evidence) for finding in diagnosis.judged]
    inapplicable = "a run of this kind can't have this problem"
    rows += [("does not apply", kind, inapplicable) for kind in diagnosis.inapplicable]
    return table(
        "Other detectors",
        [
            column("result", kind="state"),
            column("detector"),
            column("evidence", "evidence, or what is lacking"),
        ],
        rows,
        "A detector that could not judge lacks the data to say that the run is healthy.",
        is_folded=True,
    )


def comparison_section(comparison: Comparison | str | None) -> Block | None:
    """Return a comparison as a section of a report; a text says why there is none."""
    title = "Against the baseline"
    if comparison is None or isinstance(comparison, str):
        return section(
            "comparison", title, [note(f"Not compared: {comparison}", "bad") if comparison else None]
        )
    return section("comparison", title, comparison_page(comparison))


def gate_section(result: GateResult | None, recorded: Sequence[RecordedVerdict] = ()) -> Block | None:
    """Return a verdict and those that were recorded before as a section of a report."""
    return section("gate", "Gate", [*([] if result is None else gate_page(result)), verdicts_table(recorded)])


def verdicts_table(recorded: Sequence[RecordedVerdict]) -> Block | None:
    """Return the verdicts that were recorded before as a table."""
    columns = [column("time", kind="time"), column("verdict", kind="state"), column("evidence")]
    columns.append(column("episode", kind="episode"))
    rows = [
        (verdict.time // 10**6, verdict.verdict, verdict.evidence, verdict.episode) for verdict in recorded
    ]
    return table("Recorded verdicts", columns, rows)


def diagnosis_section(diagnoses: Mapping[str, Diagnosis | str], names: Mapping[str, str]) -> Block | None:
    """
    Return diagnoses by run id as a section of a report; a text says why a run was not diagnosed.

    The findings of several runs are a table, the worst first; `names` are the runs' names by id.
    """
    if len(diagnoses) == 1:
        (diagnosis,) = diagnoses.values()
        if isinstance(diagnosis, str):
            return section("diagnosis", "Diagnosis", [note(f"Not diagnosed: {diagnosis}", "warn")])
        return section("diagnosis", "Diagnosis", diagnosis_page(diagnosis))
    judged = {run_id: each for run_id, each in diagnoses.items() if not isinstance(each, str)}
    by_severity = sorted(
        ((run_id, finding) for run_id, each in judged.items() for finding in each.findings),
        key=lambda pair: _SEVERITIES.index(pair[1].severity),
    )
    columns = [
        column("severity", kind="state"),
        column("run", kind="run"),
        column("finding"),
        column("evidence"),
        column("advice", "what usually helps"),
        column("episodes", kind="episodes"),
    ]
    cells = [
        [
            *(finding.severity, f"{run_id} {names.get(run_id, '')}", finding.kind.replace("_", " ")),
            *(finding.evidence, finding.advice, " ".join(finding.episodes)),
        ]
        for run_id, finding in by_severity
    ]
    refused = [
        note(f"{names.get(run_id, run_id)}: not diagnosed: {each}", "warn")
        for run_id, each in diagnoses.items()
        if isinstance(each, str)
    ]
    healthy = sum(not each.findings for each in judged.values())
    nothing = note(f"Nothing was found in {healthy} of {count(len(diagnoses), 'run')}.") if healthy else None
    return section("diagnosis", "Diagnosis", [table("Findings", columns, cells), nothing, *refused])
