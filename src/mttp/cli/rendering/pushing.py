"""The report of a push."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mttp.pages.words import count, duration, visible
from mttp.workflows.pushing import Push

__all__ = ["push_document", "push_lines"]


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


def push_lines(job: Push, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report."""
    pushed = job.pushed
    verb = "would push" if job.dry else "pushed"
    what = f"{count(pushed.spans - pushed.resumed, 'span')} of {count(len(pushed.traces), 'trace')}"
    size = f", {pushed.bytes:,} bytes" if job.dry else ""
    yield f"{verb} {what}{size} to {document['to']}, profile {document['profile']}"
    if pushed.resumed:
        yield f"an earlier push sent {count(pushed.resumed, 'span')}"
    if job.shift:
        yield f"times are shifted by {duration(job.shift / 1e9)}"
    for item in document["left_out"]:
        yield f"  omitted: {visible(item['attribute'])} of {count(item['spans'], 'span')} ({item['reason']})"
    for cause, number in pushed.lost.items():
        if cause == "spool_damaged":
            yield f"  lost: {count(number, 'span')} of damaged lines of the spool ({cause})"
        else:
            yield f"  rejected: {count(number, 'span')} ({cause}) {visible(pushed.message)}"
