"""The log line of a session that ends with losses or faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["loss_summary"]


def loss_summary(run_id: str, counters: Mapping[str, Any]) -> str:
    """
    Return what a session lost, from `Stats.as_dict()`, in one line; spans count once for each transport.

    The line is empty if nothing was lost, nothing waits on disk and no fault occurred.
    """
    lost, faults, spooled = dict(counters["lost"]), counters["faults"], counters["spooled"]
    if counters["pending"] > spooled:
        lost["not_written"] = counters["pending"] - spooled
    if not any(lost.values()) and not faults and not spooled:
        return ""
    parts = [f"{counters['recorded']:,} spans recorded, {counters['delivered']:,} delivered"]
    if spooled:
        parts.append(f"{spooled:,} wait in the spool, which `mttp push` sends")
    if any(lost.values()) or not spooled:
        parts.append(f"{sum(lost.values()):,} lost{_by_cause(lost)}")
    if faults:
        total = sum(faults.values())
        parts.append(f"{total:,} fault{'s' * (total != 1)}{_by_cause(faults)}")
    return f"mttp: run {run_id}: {', '.join(parts)}; `mttp doctor` checks the set-up"


def _by_cause(counts: Mapping[str, int]) -> str:
    """Return the counts by cause in parentheses, the largest first; empty without any."""
    ordered = sorted(((count, cause) for cause, count in counts.items() if count), key=lambda pair: -pair[0])
    named = ", ".join(f"{cause} {count:,}" for count, cause in ordered)
    return f" ({named})" if named else ""
