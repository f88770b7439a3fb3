"""The checks at the end of a soak."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from sampling import slope

__all__ = ["Check", "checked", "live_growth", "memory", "total"]

_MOST_GROWTH = 1.0
"""Megabytes per hour above which a significant slope of memory is a leak."""
_WARM_UP = 0.25
"""The part of the time before memory is judged: by then each fault has happened."""
_OWN_CAUSES = ("buffer_full", "write_failed", "session_closed")
"""Causes of loss on mttp's side."""
_LIVE = {"blocks": 1.0, "malloc": 1e6}
"""What is measured within the training process, and its unit."""
_MOST_LIVE_GROWTH = {"blocks": 10_000.0, "malloc": 1.0}
"""Growth per hour of what is in use above which it is a leak; 10,000 blocks have about a megabyte."""
_FEW_PENDING = 5_000
"""Spans that wait, below which what is in use is comparable: those of a second or two."""
_FEWEST = 8
"""Minutes below which there is no slope worth the name."""
_STRADDLING = {
    "incomplete_episode",
    "unfinished_episode",
    "incomplete_group",
    "unknown_target",
    "missing_episodes",
    "broken_trace",
}
"""Problems of a part whose episodes go on in another part."""


class Check(NamedTuple):
    """One thing that must hold."""

    name: str
    found: str
    holds: bool


def total(reports: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The counters of one kind of transport, of all processes together."""
    found: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for report in reports:
        for address, stats in report["stats"]["transports"].items():
            if address.startswith(kind):
                found.update(
                    {name: stats[name] for name in ("recorded", "delivered", "pending", "lost_episodes")}
                )
                lost.update(stats["lost"])
                # What ended children left in the spool is pending there, until another process sends it.
                forwarded = Counter(stats["forwarded"])
                found["pending"] -= forwarded.total()
                found["delivered"] += forwarded.pop("delivered", 0)
                lost.update(forwarded)
    return {**found, "lost": dict(lost)}


def memory(samples: list[dict[str, Any]], name: str) -> dict[str, float]:
    """The slope of the lowest resident memory of each minute, in MB per hour, after the warm-up."""
    last = samples[-1]["at"]
    floors: dict[int, float] = {}
    for sample in samples:
        if sample["at"] >= _WARM_UP * last and name in sample:
            minute = int(sample["at"] // 60)
            floors[minute] = min(floors.get(minute, float("inf")), sample[name]["rss"] / 1e6)
    if len(floors) < _FEWEST:
        return {"minutes": len(floors)}
    found = slope([minute / 60 for minute in floors], list(floors.values()))
    values = list(floors.values())
    return {
        "minutes": len(floors),
        "mb_per_hour": round(found.value, 3),
        "low": round(found.low, 3),
        "high": round(found.high, 3),
        "first_mb": round(values[0], 1),
        "last_mb": round(values[-1], 1),
        "highest_mb": round(max(sample[name]["rss"] for sample in samples if name in sample) / 1e6, 1),
    }


def live_growth(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """
    The growth per hour of what is in use, after the warm-up: Python's blocks, and megabytes of malloc.

    Of each minute the lowest value counts, of moments when few spans wait and nothing fails.
    """
    last = samples[-1]["at"]
    calm = [
        each
        for each in samples
        if each["at"] >= _WARM_UP * last and each["is_quiet"] and each["otlp"]["pending"] < _FEW_PENDING
    ]
    found = {}
    for name, unit in _LIVE.items():
        floors: dict[int, float] = {}
        for sample in calm:
            if name in sample["live"]:
                minute = int(sample["at"] // 60)
                floors[minute] = min(floors.get(minute, float("inf")), sample["live"][name] / unit)
        if len(floors) >= _FEWEST:
            growth = slope([minute / 60 for minute in floors], list(floors.values()))
            found[name] = {
                "per_hour": round(growth.value, 3),
                "low": round(growth.low, 3),
                "high": round(growth.high, 3),
            }
    return found


def checked(found: dict[str, Any], reports: list[dict[str, Any]]) -> list[Check]:
    """Return every check; `reports` are the last words of the training process and of its children."""
    own = [report["own"] for report in reports]
    files, receiver = found["files"], found["receiver"]
    to_file, sent = total(reports, "file"), total(reports, "http")
    steps = sum(each["steps"] for each in own)
    checks = [
        _equal("steps recorded are the loop's own", sum(each["stats"]["steps"] for each in reports), steps),
        _equal(
            "episodes recorded are the loop's own",
            sum(each["stats"]["episodes"] for each in reports),
            sum(each["episodes"] for each in own),
        ),
        _equal("delivered to files is in the files", files["distinct"], to_file["delivered"]),
        _equal(
            "delivered to the receiver arrived",
            receiver["distinct"] - receiver["refused_after_all"],
            sent["delivered"],
        ),
        _equal("no span is twice in the files", files["duplicates"], 0),
        _equal("nothing lost in the files", sum(to_file["lost"].values()), 0),
        _equal("every step is in the files", files["steps"], steps),
        _equal(
            "episodes complete in the files",
            files["complete_episodes"],
            sum(each["episodes"] for each in own),
        ),
        _equal("episodes incomplete in the files", files["incomplete_episodes"], 0),
        _equal("torn lines", files.get("torn_ends", 0), 0),
        _equal(
            "problems of the parts, but for what is in several",
            {kind: count for kind, count in files["problems"].items() if kind not in _STRADDLING},
            {},
        ),
        _equal(
            "lost to the receiver is what it refused, besides what it dropped itself",
            {cause: count for cause, count in sent["lost"].items() if cause not in _OWN_CAUSES},
            receiver["refused"],
        ),
        _given_alike(files["names"], receiver, sum(sent["lost"].get(cause, 0) for cause in _OWN_CAUSES)),
        Check(
            "episodes incomplete at the receiver were counted",
            f"{receiver['incomplete_episodes']} of {sent['lost_episodes']} counted",
            receiver["incomplete_episodes"] <= sent["lost_episodes"],
        ),
        _equal("pending at the end", to_file["pending"] + sent["pending"], 0),
        _equal("moments when the counters disagreed", found["disagreements"], []),
        _equal("faults of recording, but for killed workers", _faults(reports), {}),
        _equal("forked children that failed", sum(each.get("failed_children", 0) for each in own), 0),
    ]
    return [*checks, *_flat(found)]


def _given_alike(in_files: dict[str, int], receiver: dict[str, Any], dropped: int) -> Check:
    """
    Whether both transports were given the same spans, by name, but for those that the queue dropped.

    Start markers, gaps and the division of later steps into columns are each transport's own.
    """
    sent = Counter(receiver["names"]) + Counter(receiver["refused_names"])
    names = {
        name for name in (*in_files, *sent) if name not in ("gap", "steps") and not name.endswith(".start")
    }
    missing = {name: in_files.get(name, 0) - sent[name] for name in sorted(names)}
    missing = {name: count for name, count in missing.items() if count}
    is_good = min(missing.values(), default=0) >= 0 and sum(missing.values()) <= dropped
    found = f"{missing or 'nothing'} missing, {dropped} dropped"
    return Check("both transports were given the same spans", found, is_good)


def _faults(reports: list[dict[str, Any]]) -> dict[str, int]:
    found = sum((Counter(each["stats"]["faults"]) for each in reports), Counter[str]())
    return {kind: count for kind, count in found.items() if not kind.startswith("helper_")}


def _equal(name: str, found: Any, expected: Any) -> Check:
    if found == expected:
        return Check(name, f"{found}" if len(f"{found}") < 80 else "equal", holds=True)
    return Check(name, f"{found}, not {expected}", holds=False)


def _flat(found: dict[str, Any]) -> list[Check]:
    """
    Whether what the training process uses, the worker's resident memory, descriptors and threads stay flat.

    The training process keeps freed memory for reuse: its resident memory follows the largest backlog,
    which the limits of the queues bound. A leak grows what is in use at moments without a backlog.
    """
    checks = []
    for name in _LIVE:
        growth = found["live"].get(name)
        if growth is None:
            checks.append(
                Check(f"{name} in use of training", "too few quiet minutes: not judged", holds=True)
            )
            continue
        shown = f"{growth['per_hour']:+,.2f}/h ({growth['low']:+,.2f} to {growth['high']:+,.2f})"
        is_flat = growth["per_hour"] < _MOST_LIVE_GROWTH[name] or growth["low"] <= 0
        checks.append(Check(f"{name} in use of training are flat", shown, is_flat))
    worker = found["memory"]["worker"]
    if "mb_per_hour" in worker:
        shown = f"{worker['mb_per_hour']:+.2f} MB/h ({worker['low']:+.2f} to {worker['high']:+.2f})"
        is_flat = worker["mb_per_hour"] < _MOST_GROWTH or worker["low"] <= 0
        checks.append(Check("memory of worker is flat", shown, is_flat))
    else:
        checks.append(Check("memory of worker", f"only {worker['minutes']} minutes: not judged", holds=True))
    samples = [each for each in found["samples"] if "training" in each and each["is_quiet"]]
    for name in ("fds", "threads"):
        counts = [each["training"][name] for each in samples]
        early, late = counts[: len(counts) // 2], counts[len(counts) // 2 :]
        if early and late:
            checks.append(
                Check(f"{name} do not grow", f"{max(early)} then {max(late)}", max(late) <= max(early) + 2)
            )
    return checks
