"""The results of compare, gate and diagnose as sections of an overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mttp.viewing.blocks import column, fact, facts, findings, note, section, table

if TYPE_CHECKING:
    from mttp.study import Comparison, Diagnosis, GateResult, MetricComparison
    from mttp.tables.summary import RecordedVerdict

__all__ = ["comparison_section", "diagnosis_section", "gate_section"]

_MOST_ROWS = 200
_STATES: Mapping[str, str] = {
    "better": "good",
    "worse": "bad",
    "promote": "good",
    "reject": "bad",
    "pass": "good",
    "fail": "bad",
    "high": "bad",
    "medium": "warn",
    "inconclusive": "warn",
}


def _state(word: str) -> str:
    return _STATES.get(word, "plain")


def comparison_section(found: Comparison | str | None) -> dict[str, Any] | None:
    """What differs between the sides first, then metrics, slices and flips; a text says why there is none."""
    if found is None or isinstance(found, str):
        reason = [] if found is None else [note(f"Not compared: {found}", "bad")]
        return section("comparison", "Against the baseline", reason)
    columns = [column("kind"), column("name"), column("base"), column("candidate")]
    rows = [(one.kind, one.name, one.base or "none", one.candidate or "none") for one in found.differences]
    compared = [(one.name, one) for one in found.metrics]
    sliced = [(name, one) for name, one in found.slices.items()]
    blocks: list[dict[str, Any] | None] = [
        facts(
            [
                fact(
                    "verdict",
                    found.verdict,
                    detail=repr(found[found.metrics[0].name])[1:-1],
                    state=_state(found.verdict),
                )
            ]
        ),
        table("What differs between the runs", columns, rows)
        or note("The runs do not differ in what is recorded."),
        _metrics("Metrics", compared),
        _metrics(f"{found.metrics[0].name} by slice", sliced),
        _flips(found),
        *(note(text) for text in found.notes),
        *(note(text, "warn") for text in found.problems),
    ]
    return section("comparison", "Against the baseline", blocks)


def _metrics(title: str, compared: Sequence[tuple[str, MetricComparison]]) -> dict[str, Any] | None:
    columns = [
        column("metric"),
        column("verdict", kind="state"),
        column("base", kind="number"),
        column("candidate", kind="number"),
        column("effect", kind="number", help="candidate - base"),
        column("low", kind="number", help="lower end of the confidence interval"),
        column("high", kind="number", help="upper end of the confidence interval"),
        column("p", kind="number", help="two-sided, corrected by Holm for all metrics but the first"),
        column("n"),
        column("missing"),
        column("worst case", help="the effect and its interval, with the missing values against the claim"),
        column("detectable", kind="number", help="the least effect that this sample would show, power 80 %"),
        column("method"),
    ]
    rows = [
        [
            *(name, one.verdict, one.base, one.candidate, one.effect),
            *(one.interval or (None, None)),
            one.p_corrected,
            "{:,} and {:,}".format(*one.n),
            "{:,} and {:,}".format(*one.missing) if any(one.missing) else None,
            one.worst_case_text or None,
            one.detectable,
            one.reason or one.method,
        ]
        for name, one in compared
    ]
    return table(title, columns, rows)


def _flips(found: Comparison) -> dict[str, Any] | None:
    columns = [
        column("task"),
        column("base", "base success", "share"),
        column("candidate", "candidate success", "share"),
        column("change", kind="state"),
        column("episode", kind="episode"),
        column("base_episode", "episode of the base"),
    ]
    rows = [
        (
            one.task,
            one.base,
            one.candidate,
            "gained" if one.gained else "lost",
            one.candidate_episode,
            one.base_episode,
        )
        for one in sorted(found.flips, key=lambda one: one.gained)[:_MOST_ROWS]
    ]
    gained = sum(one.gained for one in found.flips)
    return table(
        "Tasks that changed sides", columns, rows, f"{gained:,} gained, {len(found.flips) - gained:,} lost."
    )


def gate_section(found: GateResult | None, recorded: Sequence[RecordedVerdict] = ()) -> dict[str, Any] | None:
    """The verdict and each rule, and the verdicts that were recorded before."""
    columns = [column("time", kind="time"), column("verdict", kind="state"), column("evidence")]
    columns.append(column("episode", kind="episode"))
    rows = [(one.time // 10**6, one.verdict, one.evidence, one.episode) for one in recorded]
    history = table("Recorded verdicts", columns, rows)
    return section("gate", "Gate", [*([] if found is None else _gated(found)), history])


def _gated(found: GateResult) -> list[dict[str, Any] | None]:
    columns = [
        column("rule"),
        column("verdict", kind="state"),
        column("evidence"),
        column("episodes", kind="episodes"),
    ]
    rows = [(one.name, one.verdict, one.evidence, " ".join(one.episodes[:10])) for one in found.rules]
    return [
        facts(
            [
                fact(
                    "verdict",
                    found.verdict,
                    detail=repr(found)[1:-1].partition(": ")[2],
                    state=_state(found.verdict),
                )
            ]
        ),
        table("Promotion rules", columns, rows),
        *(note(text) for text in found.notes),
    ]


def diagnosis_section(found: Diagnosis | str | None) -> dict[str, Any] | None:
    """Findings with evidence and advice, then the other detectors; a text says why there are none."""
    if found is None or isinstance(found, str):
        reason = [] if found is None else [note(f"Not diagnosed: {found}", "warn")]
        return section("diagnosis", "Diagnosis", reason)
    items = [
        {
            "kind": one.kind,
            "severity": one.severity,
            "state": _state(one.severity),
            "evidence": f"{one.evidence} ({one.confidence}; in {one.false_alarm_rate:.1%} of healthy runs)",
            "advice": one.advice,
            "episodes": list(one.episodes[:10]),
        }
        for one in found.findings
    ]
    reading = found.reading
    judged = [("nothing found", one.kind, one.evidence) for one in found.judged]
    judged += [("not judged", one.kind, one.reason) for one in found.missing]
    judged += [
        ("does not apply", kind, "a run of this kind can't have this problem") for kind in found.inapplicable
    ]
    columns = [
        column("result", kind="state"),
        column("detector"),
        column("evidence", "evidence, or what is lacking"),
    ]
    blocks: list[dict[str, Any] | None] = [
        *(note(sentence, "bad") for sentence in found.sampled),
        note(found.advice, "bad" if found.should_stop else "plain"),
        findings(items, "The worst first; a finding is a reason to look, not a proof."),
        None if items else note("No detector found a problem.", "good" if not found.missing else "plain"),
        facts(
            [
                fact("reward", reading.reward, detail=reading.reward_trend),
                fact("validation", reading.validation, detail=reading.validation_trend),
                fact("together", reading.meaning, detail=reading.action),
            ]
        ),
        table(
            "Other detectors",
            columns,
            judged,
            "A detector that could not judge lacks the data to say that the run is healthy.",
            is_folded=True,
        ),
    ]
    return section("diagnosis", "Diagnosis", blocks)
