"""`mttp push`: send recorded files to an OTLP receiver, such as a Collector, Jaeger or Tempo."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mttp.cli.output import Json, Sources, console, print_json, progress, receiver, say
from mttp.cli.rendering.problems import problem_lines
from mttp.cli.rendering.words import count, duration, visible
from mttp.otlp.recording_files import File
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import find
from mttp.transports.otlp import OtlpTransport
from mttp.transports.pushing import Push, Pushed, PushState, latest

__all__ = ["push"]

_BAR_FROM = 1
"""Bytes from which a push shows a progress bar: a slow receiver delays a small push, too."""


def push(
    paths: Sources,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="The receiver: http://HOST:4318 or grpc://HOST:4317.")
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Profile of the receiver, such as tempo; by default, its address decides.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Header of every request; may be repeated."),
    ] = None,
    content: Annotated[
        bool, typer.Option("--content", help="Also send content: observations, actions, texts.")
    ] = False,
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Also send token ids, which a tokenizer decodes to text.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Shift all times so that the last span ends now.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.001, help="Send at most N spans per second."),
    ] = None,
    max_retry_seconds: Annotated[
        float,
        typer.Option(
            "--max-retry-seconds",
            metavar="SECONDS",
            min=0,
            help="How long to retry while the receiver accepts nothing.",
        ),
    ] = 30.0,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            help="File that stores the progress of the push.",
            show_default="a hidden file beside the recording",
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start from the beginning instead of resuming.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but send.")] = False,
    json: Json = False,
) -> None:
    """
    Send recorded spans to an OTLP receiver with their original ids and times.

    Attributes that the receiver does not keep are omitted, and the span lists their names.
    Run the same command again to resume an interrupted push. Spans that arrive twice have the same ids, so
    a reader counts them once.

    \b
    Examples:
      mttp push runs/cartpole.jsonl --to http://localhost:4318
      mttp push runs/ --to http://localhost:6006 --content
      mttp push runs/ --to grpc://tempo:4317 --profile tempo --now
      mttp push 'runs/*.jsonl' --to http://localhost:4318 --rate 2000 --dry-run

    \b
    Exit codes:
      0  Everything is fine.
      1  The receiver rejected some spans.
      2  Wrong usage, unreadable input, or the receiver accepted nothing.
    130  Interrupted; run the same command again to resume.
    """
    transport = receiver(to, header=header, profile=profile)
    withholding = replace(transport.withholding, content=content, token_ids=content or token_ids)
    about = _about(paths, transport, content=content, token_ids=content or token_ids, now=now)
    progress_file = PushState(state or _beside(paths, to), about)
    so_far = {} if dry_run else progress_file.load(restart=restart)
    shift = so_far.get("shift", time.time_ns() - latest(Scan(paths, arrays=False)) if now else 0)

    def save(pushed: Pushed) -> None:
        progress_file.save(spans=pushed.spans, shift=shift, lost=dict(pushed.lost))

    job = Push(
        transport=transport,
        withholding=withholding,
        shift=shift,
        rate=rate,
        max_retry_seconds=max_retry_seconds,
        dry=dry_run,
        on_trouble=lambda message: say(visible(f"mttp: {message}"), error=True),
        on_progress=None if dry_run else save,
        pushed=Pushed(spans=so_far.get("spans", 0), lost=Counter(so_far.get("lost", {}))),
    )
    if not dry_run:
        save(job.pushed)  # fails before anything is sent
    began = time.monotonic()
    with progress(paths, doing="pushing", least=_BAR_FROM) as advance:
        scan = Scan(paths, arrays=True, as_written=True, progress=advance)
        try:
            job.run(scan, done=so_far.get("spans", 0))
        except KeyboardInterrupt:
            resume = "" if dry_run else "; run the same command again to resume"
            say(
                f"mttp: interrupted after {count(job.pushed.spans, 'span')}{resume}",
                error=True,
            )
            raise
    transport.shutdown()
    if not dry_run:
        progress_file.remove()
    document = _document(job, dry_run=dry_run, seconds=time.monotonic() - began)
    if json:
        print_json(document | {"problems": scan.problems})
    else:
        _print_report(job, document, scan.problems)
    if job.pushed.lost:
        raise typer.Exit(1)


def _files(paths: Sequence[str]) -> list[Path]:
    return [item.path for item in find(list(paths)) if isinstance(item, File)]


def _about(paths: Sequence[str], transport: OtlpTransport, **options: Any) -> dict[str, Any]:
    """Return what identifies a push: files, their sizes and times, the receiver and the options."""
    files = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in _files(paths)]
    return {"files": files, "to": repr(transport), "profile": transport.profile, **options}


def _beside(paths: Sequence[str], to: str) -> Path:
    """Return a hidden file for this push beside the first recording, or here for a trace store."""
    files = _files(paths)
    digest = hashlib.sha256("\n".join([to, *paths]).encode()).hexdigest()[:8]
    return (files[0].parent if files else Path()) / f".push-{digest}"


def _document(job: Push, *, dry_run: bool, seconds: float) -> dict[str, Any]:
    pushed: Pushed = job.pushed
    omitted = [
        {"attribute": key, "reason": why, "spans": number}
        for (key, why), number in sorted(pushed.omitted.items())
    ]
    return {
        "to": repr(job.transport),
        "profile": job.transport.profile,
        "dry_run": dry_run,
        "spans": pushed.spans,
        "resumed": pushed.resumed,
        "traces": len(pushed.traces),
        **({"bytes": pushed.bytes} if dry_run else {}),
        "shifted_seconds": job.shift / 1e9,
        "seconds": seconds,
        "lost": dict(pushed.lost),
        "message": pushed.message,
        "left_out": omitted,
    }


def _print_report(job: Push, document: dict[str, Any], problems: Sequence[Problem]) -> None:
    pushed = job.pushed
    verb = "would push" if document["dry_run"] else "pushed"
    what = f"{count(pushed.spans - pushed.resumed, 'span')} of {count(len(pushed.traces), 'trace')}"
    size = f", {pushed.bytes:,} bytes" if document["dry_run"] else ""
    say(f"{verb} {what}{size} to {document['to']}, profile {document['profile']}")
    if pushed.resumed:
        say(f"an earlier push sent {count(pushed.resumed, 'span')}")
    if job.shift:
        say(f"times are shifted by {duration(job.shift / 1e9)}")
    for item in document["left_out"]:
        say(f"  omitted: {visible(item['attribute'])} of {count(item['spans'], 'span')} ({item['reason']})")
    for cause, number in pushed.lost.items():
        say(f"  rejected: {count(number, 'span')} ({cause}) {visible(pushed.message)}")
    if problems:
        console().print("", problem_lines(problems), sep="\n")
