"""Rewards of a spec for recorded episodes, and their agreement with raters, as text and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering.figures import SHARE_INTERVAL, share_interval
from mttp.cli.rendering.trials import instability_document, instability_line
from mttp.pages.words import NOTHING, count, number, printed
from mttp.reading.jsonable import jsonable
from mttp.rewards.spec import RewardSpec
from mttp.rewards.validation import RaterAgreement, Validation

__all__ = ["document", "render"]

_MOST = 5
_LEGEND = (
    "agreed: equal verdicts, with a 95 % interval by Wilson; of rewards, pairs of episodes",
    "that the rater tells apart and the rewards order alike. kappa is Cohen's, tau-b",
    "Kendall's, alpha Krippendorff's: nominal of verdicts, interval of rewards.",
)


def document(spec: RewardSpec, found: Validation) -> dict[str, Any]:
    """Return a validation as an object of plain data."""
    return {
        "spec": jsonable(spec.identity),
        "episodes": len(found.episodes),
        "without_inputs": found.without_inputs,
        "lacking": dict(found.lacking),
        "without_group": found.without_group,
        "statuses": dict(found.statuses),
        "errors": dict(found.errors),
        "verdicts": dict(found.verdicts),
        "failed_checks": dict(found.failed_checks),
        "mean": found.mean,
        "instability": instability_document(found.instability),
        "agreements": [_agreement(one) for one in found.agreements],
        "unread_labels": dict(found.unread_labels),
        "scored": [
            {
                "trace_id": one.trace_id,
                "task": one.task,
                "values": [result.value for result in one.results],
                "status": one.result.status,
                "verdict": one.result.verdict,
                "failed_checks": list(one.result.failed_checks),
                "error": one.result.error,
            }
            for one in found.episodes
        ],
    }


def _agreement(one: RaterAgreement) -> dict[str, Any]:
    interval = share_interval(one.agreed, one.of) if one.compared == "verdict" else None
    data: dict[str, Any] = jsonable(one)
    return data | {
        "agreement": one.agreed / one.of if one.of else None,
        "interval": list(interval) if interval is not None else None,
        "interval_method": SHARE_INTERVAL if interval is not None else None,
        "alpha_level": "nominal" if one.compared == "verdict" else "interval",
    }


def render(spec: RewardSpec, found: Validation) -> RenderableType:
    """Return a validation as text: statistics of the scoring, then a row for each rater."""
    parts: list[RenderableType] = [
        Text(f"{spec.name} {spec.version}: {count(len(found.episodes), 'episode')} scored", style="bold")
    ]
    parts += [printed(f"  {line}", style=style) for line, style in _lines(found)]
    parts.append(Text())
    if not found.agreements:
        parts.append(Text("these episodes have no annotated score, outcome or label"))
        return Group(*parts)
    parts += [_table(found), Text()]
    parts += [Text(line) for line in _LEGEND]
    return Group(*parts)


def _lines(found: Validation) -> Iterator[tuple[str, str]]:
    valid = found.statuses.get("ok", 0)
    yield f"mean reward {number(found.mean)}, of {valid:,} of {len(found.episodes):,}", ""
    for what, counts in (("verdicts", found.verdicts), ("failed checks", found.failed_checks)):
        if counts:
            yield f"{what}: {_counted(counts)}", ""
    if invalid := {status: number for status, number in found.statuses.items() if status != "ok"}:
        yield f"not ok: {_counted(invalid)}", "yellow"
    common = sorted(found.errors.items(), key=lambda one: -one[1])
    for error, times in common[:_MOST]:
        yield f"{times:,} x {error}", "red"
    if len(common) > _MOST:
        yield f"and {len(common) - _MOST:,} other errors; --json has all", "red"
    if found.instability is not None:
        yield instability_line(found.instability, "episode"), "yellow" if found.instability.unstable else ""
    for names, times in found.lacking.items():
        yield f"{count(times, 'episode')} did not record {names}", "yellow"
    if found.without_group:
        yield f"{count(found.without_group, 'episode')} without a group, which the spec compares", "yellow"
    if found.unread_labels:
        yield f"labels that mean neither pass nor fail: {_counted(found.unread_labels)}", "yellow"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {times:,}" for name, times in sorted(counts.items()))


def _table(found: Validation) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rater")
    table.add_column("what")
    for name in ("n", "agreed", "kappa", "tau-b", "alpha"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.agreements:
        figures = (number(one.kappa), number(one.tau_b), number(one.alpha))
        left = f" ({one.left_out:,} left out)" if one.left_out else ""
        what = f"{one.key} to {one.compared}"
        table.add_row(printed(one.by or NOTHING), what, f"{one.episodes:,}{left}", _share(one), *figures)
    return table


def _share(one: RaterAgreement) -> str:
    if not one.of:
        return NOTHING
    interval = share_interval(one.agreed, one.of) if one.compared == "verdict" else None
    rate = f"{100 * one.agreed / one.of:.0f} %"
    return f"{rate} [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]" if interval is not None else rate
