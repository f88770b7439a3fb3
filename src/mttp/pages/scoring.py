"""What reward specs score: their cases, faults in them, and recorded episodes; pages and plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mttp.model.statistics.descriptive import SHARE_INTERVAL, share_interval
from mttp.pages.blocks import Block, column, note, table
from mttp.pages.words import NOTHING, count, number, shortened
from mttp.reading.jsonable import jsonable

if TYPE_CHECKING:
    from mttp.model.draws import LabelRate
    from mttp.rewards.case_runs import CaseReport, CaseResult, Instability
    from mttp.rewards.mutations import Mutant, Mutation
    from mttp.rewards.rescoring import Rescored, Rescoring
    from mttp.rewards.spec import RewardSpec
    from mttp.rewards.validation import RaterAgreement, Validation
    from mttp.study import RescoredRecording, RewardChange

__all__ = [
    "cases_document",
    "cases_page",
    "mutation_document",
    "mutation_page",
    "rescored_headline",
    "rescored_page",
    "rescoring_document",
    "rescoring_page",
    "validation_document",
    "validation_page",
]

_MOST: Final = 10
_LEGEND: Final = (
    "agreed: equal verdicts, with a 95 % interval by Wilson; of rewards, pairs of episodes that the rater "
    "tells apart and the rewards order alike. kappa is Cohen's, tau-b Kendall's, alpha Krippendorff's: "
    "nominal of verdicts, interval of rewards."
)


# The cases of a spec, and faults that they detect or miss.


def cases_document(spec: RewardSpec, report: CaseReport) -> dict[str, Any]:
    """Return the results as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "passed": not report.failed,
        "failed": report.failed,
        "cases": [_case(outcome) for outcome in report.outcomes],
        "better": [
            {
                "better": order.stated.better,
                "than": order.stated.than,
                "margin": order.margin,
                "miss": order.miss,
            }
            for order in report.orders
        ],
        "coverage": jsonable(report.coverage),
        "instability": _instability_document(report.instability),
        "agreement": jsonable(report.agreement),
    }


def _instability_document(instability: Instability | None) -> dict[str, Any] | None:
    """Return the instability of repeated scorings as an object of plain data; None without repeats."""
    if instability is None:
        return None
    interval = share_interval(instability.unstable, instability.samples)
    return {
        **jsonable(instability),
        "rate": instability.rate,
        "interval": list(interval) if interval is not None else None,
        "interval_method": SHARE_INTERVAL if interval is not None else None,
    }


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


def cases_page(spec: RewardSpec, report: CaseReport) -> Iterator[Block | None]:
    """Yield a row per case with the score of each component, then orders, gaps and differences of repeats."""
    failures = sum(not outcome.passed for outcome in report.outcomes)
    failures += sum(order.miss is not None for order in report.orders)
    orders = f" and {count(len(report.orders), 'order')}" if report.orders else ""
    ended = f"{failures:,} failed" if failures else "all passed"
    cases = f"{spec.name} {spec.version}: {count(len(report.outcomes), 'case')}{orders}"
    yield note(f"{cases}; {ended}", "bad" if failures else "good")
    names = [part.name for part in report.coverage]
    columns = [
        *(column("result", kind="state"), column("case"), column("kind")),
        *(column(name, name, "number") for name in ("reward", *names)),
        *(column("time", kind="seconds"), column("unstable"), column("missed")),
    ]
    rows = [
        (
            *("ok" if outcome.passed else "failed", outcome.case.name, outcome.case.kind, outcome.value),
            *(_component_score(outcome, name) for name in names),
            outcome.seconds / len(outcome.results),
            "; ".join(_differing(outcome)),
            "; ".join(outcome.misses),
        )
        for outcome in report.outcomes
    ]
    yield table("Cases", columns, rows)
    missed = [(order.miss,) for order in report.orders if order.miss is not None]
    yield table("Orders that fail", [column("missed")], missed)
    gaps = [(f"{part.name} {part.gap}: no case shows anything else",) for part in report.coverage if part.gap]
    yield table("Gaps", [column("gap")], gaps)
    if report.instability is not None:
        yield _instability_note(report.instability, "case")
    if (agreement := report.agreement) is not None:
        share = f"{number(agreement.accuracy and 100 * agreement.accuracy)} %"
        yield note(
            f"human scores agree on {share} of {count(agreement.pairs, 'pair')} that they rank; Kendall's "
            f"tau-b {number(agreement.tau_b)}, {count(agreement.cases, 'case')}"
        )


def _component_score(outcome: CaseResult, name: str) -> float | str | None:
    """Return the score of a component; if repeats differ, the lowest and the highest."""
    grades = [result.components[name] for result in outcome.results if name in result.components]
    values = sorted(grade.value for grade in grades if grade.value is not None)
    if len(values) < len(grades) or not values:
        return next((grade.status for grade in grades if grade.value is None), None)
    return values[0] if values[0] == values[-1] else f"{number(values[0])} to {number(values[-1])}"


def _differing(outcome: CaseResult) -> Iterator[str]:
    """Yield the components that scored the same input differently, with their values."""
    for name, values in outcome.unstable.items():
        distinct = sorted(set(values), key=lambda value: (value is None, value or 0.0))
        yield f"{name} scored the same input {' and '.join(map(number, distinct))}"


def _instability_note(instability: Instability, noun: str) -> Block:
    """Return how many repeated scorings differed, as a sentence."""
    samples = count(instability.samples, noun)
    text = f"unstable: {instability.unstable:,} of {samples}, scored {instability.repeats:,} times each"
    if instability.rate is not None:
        interval = share_interval(instability.unstable, instability.samples) or (0.0, 1.0)
        within = "{:.1f} to {:.1f} %".format(*(100 * bound for bound in interval))
        text += f": {100 * instability.rate:.1f} %, {within} ({SHARE_INTERVAL})"
    return note(text, "warn" if instability.unstable else "plain")


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


def mutation_page(spec: RewardSpec, mutation: Mutation) -> Iterator[Block | None]:
    """Yield the number of detected faults, then the undetected ones."""
    name, survivors = f"{spec.name} {spec.version}", mutation.survivors
    if mutation.report.failed:
        yield note(f"{name}: no fault was tried, because cases fail without one", "bad")
        yield table("Cases that fail", [column("missed")], [(miss,) for miss in mutation.report.failed])
        return
    faults = count(len(mutation.mutants), "fault")
    state = "warn" if survivors else "good"
    yield note(f"{name}: {len(mutation.mutants) - len(survivors):,} of {faults} detected", state)
    rows = [(mutant.fault, mutant.kind, _remedy(mutant)) for mutant in survivors]
    yield table("", [*map(column, ("undetected_fault", "kind", "detected_by"))], rows)


def _remedy(mutant: Mutant) -> str:
    if mutant.changed:
        return f"an expected value in {', '.join(mutant.changed[:3])}, whose reward changes"
    return f"a case in which {' and '.join(mutant.components)} makes a difference"


def validation_document(spec: RewardSpec, validation: Validation) -> dict[str, Any]:
    """Return a validation as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "episodes": len(validation.episodes),
        "without_inputs": validation.without_inputs,
        "lacking": dict(validation.lacking),
        "without_group": validation.without_group,
        "statuses": dict(validation.statuses),
        "errors": dict(validation.errors),
        "verdicts": dict(validation.verdicts),
        "failed_checks": dict(validation.failed_checks),
        "mean": validation.mean,
        "instability": _instability_document(validation.instability),
        "agreements": [_agreement(episode) for episode in validation.agreements],
        "rates": jsonable(validation.rates),
        "unread_labels": dict(validation.unread_labels),
        "scored": [
            {
                "trace_id": episode.trace_id,
                "task": episode.task,
                "values": [result.value for result in episode.results],
                "status": episode.result.status,
                "verdict": episode.result.verdict,
                "failed_checks": list(episode.result.failed_checks),
                "error": episode.result.error,
            }
            for episode in validation.episodes
        ],
    }


def _agreement(agreement: RaterAgreement) -> dict[str, Any]:
    interval = _interval(agreement)
    data: dict[str, Any] = jsonable(agreement)
    return data | {
        "agreement": data.pop("share"),
        "interval": list(interval) if interval is not None else None,
        "interval_method": SHARE_INTERVAL if interval is not None else None,
        "alpha_level": "nominal" if agreement.compared == "verdict" else "interval",
    }


def _interval(rater: RaterAgreement) -> tuple[float, float] | None:
    """Return the interval of the share of equal verdicts, for the effective number of labels."""
    if rater.compared != "verdict" or rater.share is None:
        return None
    return share_interval(rater.share * rater.effective, rater.effective)


def validation_page(spec: RewardSpec, validation: Validation) -> Iterator[Block | None]:
    """Yield statistics of the scoring, then a row for each rater."""
    episodes, valid = len(validation.episodes), validation.statuses.get("ok", 0)
    yield note(f"{spec.name} {spec.version}: {count(episodes, 'episode')} scored")
    yield note(f"mean reward {number(validation.mean)}, of {valid:,} of {episodes:,}")
    invalid = {status: times for status, times in validation.statuses.items() if status != "ok"}
    for what, counts, state in (
        ("verdicts", validation.verdicts, "plain"),
        ("failed checks", validation.failed_checks, "plain"),
        ("not ok", invalid, "warn"),
        ("labels that mean neither pass nor fail", validation.unread_labels, "warn"),
    ):
        if counts:
            words = ", ".join(f"{name} {times:,}" for name, times in sorted(counts.items()))
            yield note(f"{what}: {words}", state)
    if validation.instability is not None:
        yield _instability_note(validation.instability, "episode")
    yield _reasons("Errors", validation.errors)
    yield _unscored(validation.lacking, validation.without_group)
    yield from _rates(validation.rates)
    columns = [
        *(column("rater"), column("what"), column("n", kind="number"), column("left_out", kind="number")),
        *(column(name, kind="number") for name in ("agreed", "kappa", "tau-b", "alpha")),
    ]
    rows = [
        (
            *(rater.by, f"{rater.key} to {rater.compared}", rater.episodes, rater.left_out or None),
            *(_agreed(rater), rater.kappa, rater.tau_b, rater.alpha),
        )
        for rater in validation.agreements
    ]
    yield table("Agreement with raters", columns, rows, _LEGEND) or note(
        "these episodes have no annotated score, outcome or label"
    )


def _agreed(rater: RaterAgreement) -> str | None:
    if rater.share is None:
        return None
    interval = _interval(rater)
    within = "" if interval is None else " [{:.0f}, {:.0f}]".format(*(100 * bound for bound in interval))
    return f"{100 * rater.share:.0f} %{within}"


def _mean(rate: LabelRate) -> str | None:
    if rate.mean is None:
        return None
    return f"{rate.mean:.3g}" + ("" if rate.interval is None else " [{:.3g}, {:.3g}]".format(*rate.interval))


def _rates(rates: Sequence[LabelRate]) -> Iterator[Block | None]:
    """Yield the mean label of each rater, and the labels that are left out."""
    if not any(rate.left_out or round(rate.effective, 1) != rate.labels for rate in rates):
        return
    names = ("rater", "what"), ("n", "effective n", "left out"), ("mean", "method")
    columns = [
        *(column(name) for name in names[0]),
        *(column(name, kind="number") for name in names[1]),
        *(column(name) for name in names[2]),
    ]
    rows = [
        (
            *(rate.by, rate.key, rate.labels, round(rate.effective, 1), sum(rate.left_out.values()) or None),
            *(_mean(rate), rate.method),
        )
        for rate in rates
    ]
    left_out = sum((Counter(rate.left_out) for rate in rates), Counter[str]())
    words = ", ".join(f"{name} {times:,}" for name, times in sorted(left_out.items()))
    legend = "95 % by Wilson of labels that are 0 or 1, else by Student's t, for the effective n (Kish)"
    yield table(
        "Labels", columns, rows, f"left out, by how episodes were chosen: {words or 'none'}; {legend}."
    )


def _reasons(title: str, reasons: Mapping[str, int]) -> Block | None:
    """Return the most frequent reasons for no valid reward, with the number of episodes."""
    common = sorted(reasons.items(), key=lambda item: -item[1])
    more = f"{len(common) - _MOST:,} more, listed by --json" if len(common) > _MOST else ""
    rows = [(episodes, shortened(reason)) for reason, episodes in common[:_MOST]]
    return table(title, [column("episodes", kind="number"), column("reason")], rows, more)


def _unscored(lacking: Mapping[str, int], without_group: int = 0) -> Block | None:
    """Return why episodes were not scored, with their number."""
    reasons = {f"did not record {names}": episodes for names, episodes in lacking.items()}
    if without_group:
        reasons["without a group, which the spec compares"] = without_group
    return _reasons("Not scored", reasons)


# Recorded episodes by two specs, and by another spec than the recorded one.


def rescoring_document(found: Rescoring) -> dict[str, Any]:
    """Return a rescoring as an object of plain data, with the episodes whose reward or verdict changed."""
    return {
        **{one.name: jsonable(one) for one in found.slices[:1]},
        "slices": [jsonable(one) for one in found.slices[1:]],
        "reasons_before": dict(found.reasons_before),
        "reasons_after": dict(found.reasons_after),
        "without_inputs": found.without_inputs,
        "lacking": dict(found.lacking),
        "reproduced": found.reproduced,
        "episodes": [jsonable(one) for one in found.episodes if one.changed or one.flipped],
    }


def rescoring_page(rescoring: Rescoring) -> Iterator[Block | None]:
    """Yield a row for each slice, then the episodes that changed most, and why rewards are invalid."""
    counts = ("episodes", "changed", "flipped")
    columns = [column("slice"), *(column(name, kind="number") for name in counts), column("invalid")]
    columns += [column(name, kind="number") for name in ("mean_before", "mean_after", "tau-b")]
    rows = [
        (
            *(each.name, each.episodes, each.changed, each.flipped),
            f"{each.invalid_before:,} → {each.invalid_after:,}",
            *(each.mean_before, each.mean_after, each.tau_b),
        )
        for each in rescoring.slices
    ]
    yield table("Rescored", columns, rows)
    changed = sorted(
        (each for each in rescoring.episodes if each.changed or each.flipped), key=_size, reverse=True
    )
    columns = [column("episode", kind="episode"), column("task")]
    columns += [*(column(name, kind="number") for name in ("before", "after")), column("verdict")]
    changes = [
        (
            *(each.trace_id, each.task, each.before, each.after),
            _arrow(each.verdict_before, each.verdict_after),
        )
        for each in changed[:_MOST]
    ]
    yield table("Episodes that change most", columns, changes, _more(changed))
    if rescoring.reasons_before == rescoring.reasons_after:
        yield _reasons("Invalid by A and B", rescoring.reasons_before)
    else:
        yield _reasons("Invalid by A", rescoring.reasons_before)
        yield _reasons("Invalid by B", rescoring.reasons_after)
    yield _unscored(rescoring.lacking)


def _size(each: Rescored) -> tuple[bool, float]:
    """Return the sort key for the change of an episode: lost or gained rewards, then flips, then values."""
    if each.before is None or each.after is None:
        return True, float(each.changed)
    return each.flipped, abs(each.after - each.before)


def _arrow(before: object, after: object) -> str | None:
    """Return both values if they differ."""
    words = [NOTHING if value is None else str(value) for value in (before, after)]
    return None if before == after else " → ".join(words)


def _more(changed: Sequence[object]) -> str:
    return f"{len(changed) - _MOST:,} more, listed by --json" if len(changed) > _MOST else ""


def rescored_headline(rescored: RescoredRecording) -> str:
    """Return how many rewards, verdicts and advantages change."""
    changed = sum(change.changed for change in rescored.changes)
    return (
        f"{rescored.grader}: {changed:,} of {count(len(rescored.changes), 'reward')} change, "
        f"{count(len(rescored.flips), 'verdict')} flip, "
        f"{count(len(rescored.reversals), 'advantage')} change sign"
    )


def rescored_page(rescored: RescoredRecording) -> Iterator[Block | None]:
    """Yield how much changes, why rewards are invalid, and the episodes that change most."""
    old, new = rescored.means
    yield note(rescored_headline(rescored), "warn" if rescored.flips or rescored.invalid else "plain")
    yield note(f"mean reward {number(old)} recorded, {number(new)} by the new spec")
    yield _reasons("Invalid", rescored.invalid)
    yield _unscored(rescored.lacking, rescored.without_group)
    changed = sorted(
        (change for change in rescored.changes if change.changed or change.flipped),
        key=_distance,
        reverse=True,
    )
    columns = [column("episode", kind="episode"), column("task")]
    columns += [column(name, kind="number") for name in ("old", "new")]
    columns += map(column, ("verdict", "rank", "advantage"))
    rows = [
        (
            *(change.trace_id, change.task, change.old, change.new),
            _arrow(change.old_verdict, change.new_verdict),
            _arrow(change.old_rank, change.new_rank),
            _arrow(number(change.old_advantage), number(change.new_advantage)) if change.reversed else None,
        )
        for change in changed[:_MOST]
    ]
    yield table("Episodes that change most", columns, rows, _more(changed))


def _distance(change: RewardChange) -> tuple[bool, bool, float]:
    distance = float("inf") if change.old is None or change.new is None else abs(change.new - change.old)
    return change.flipped, change.reversed, distance
