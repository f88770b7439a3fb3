"""`mttp push`: send recorded files, or a spool, to an OTLP receiver, such as a Collector, Jaeger or Tempo."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from mttp.cli.output import Json, Sources, print_json, print_page, progress, receiver, say
from mttp.errors import ConfigureError
from mttp.otlp.recording_files import File
from mttp.pages.checks import push_document, push_page
from mttp.pages.words import count, visible
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import find
from mttp.transports.otlp import OtlpTransport
from mttp.transports.spool import SpoolFolder, is_spool
from mttp.transports.spool.selection import SpoolSelection, select
from mttp.workflows.pushing import Push, Pushed, PushState, latest

__all__ = ["push"]


class PushOptions(TypedDict):
    """Options of `Push` for recordings and spools."""

    rate: float | None
    max_retry_seconds: float
    dry: bool
    on_trouble: Callable[[str], None]


_BAR_FROM = 1
"""Bytes from which a push shows a progress bar: a slow receiver delays a small push, too."""


def push(
    paths: Sources,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="The receiver: http://HOST:4318 or grpc://HOST:4317.",
            show_default="for a spool, the receiver of its spans",
        ),
    ] = None,
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

    A spool is the directory of the option spool=DIR of an address, where spans wait for their receiver.
    Its spans are sent as they are, in order, and deleted from it; those of running processes stay.

    \b
    Examples:
      mttp push runs/cartpole.jsonl --to http://localhost:4318
      mttp push runs/ --to http://localhost:6006 --content
      mttp push runs/ --to grpc://tempo:4317 --profile tempo --now
      mttp push 'runs/*.jsonl' --to http://localhost:4318 --rate 2000 --dry-run
      mttp push spool/

    \b
    Exit codes:
      0  Everything is fine.
      1  The receiver rejected some spans, or lines of the spool are damaged.
      2  Wrong usage, unreadable input, or the receiver accepted nothing.
    130  Interrupted; run the same command again to resume.
    """
    sending: PushOptions = {
        "rate": rate,
        "max_retry_seconds": max_retry_seconds,
        "dry": dry_run,
        "on_trouble": lambda message: say(visible(f"mttp: {message}"), error=True),
    }
    began = time.monotonic()
    spools = [path for path in paths if is_spool(Path(path))]
    if spools and len(paths) > 1:
        raise typer.BadParameter(f"{spools[0]} is a spool, or a part of one: name one spool and nothing else")
    if spools:
        unsupported = {"--content": content, "--token-ids": token_ids, "--now": now, "--state": state}
        _refuse(unsupported | {"--restart": restart})
        job, notes = _push_spool(select(Path(paths[0]), to), header=header, profile=profile, sending=sending)
        problems: Sequence[Problem] = ()
    elif to is None and len(paths) == 1 and _is_empty(Path(paths[0])):
        say(f"{visible(paths[0])} is empty: no spans wait there", error=json)
        if json:
            print_json({"dry_run": dry_run, "spans": 0, "traces": 0, "lost": {}, "problems": [], "notes": []})
        return
    elif to is None:
        find(list(paths))
        raise typer.BadParameter("give the receiver, such as http://localhost:4318", param_hint="--to")
    else:
        transport = receiver(to, header=header, profile=profile)
        withholding = replace(transport.withholding, content=content, token_ids=content or token_ids)
        job = Push(transport=transport, withholding=withholding, **sending)
        about = _about(paths, transport, content=content, token_ids=content or token_ids, now=now)
        progress_file = PushState(state or _beside(paths, to), about)
        problems, notes = _push_recordings(job, paths, progress_file, now=now, restart=restart), []
    job.transport.shutdown()
    document = push_document(job, seconds=time.monotonic() - began)
    if json:
        print_json(document | {"problems": problems, "notes": notes})
    else:
        print_page(push_page(job, document, notes, problems))
    if job.pushed.lost:
        raise typer.Exit(1)


def _is_empty(directory: Path) -> bool:
    """Whether it is a directory without files, as a spool is once its spans were sent."""
    return directory.is_dir() and not any(path.is_file() for path in directory.rglob("*"))


def _refuse(options: Mapping[str, object]) -> None:
    """Raise BadParameter for options that a spool does not have."""
    for option, value in options.items():
        if value:
            raise typer.BadParameter("a spool is sent as it is", param_hint=option)


def _push_spool(
    chosen: SpoolSelection, *, header: Sequence[str] | None, profile: str | None, sending: PushOptions
) -> tuple[Push, list[str]]:
    """Send the spans that ended processes left in a spool; return the push, and notes about the rest."""
    transport = receiver(chosen.address, header=header, profile=profile or chosen.profile)
    withholding = replace(transport.withholding, content=True, token_ids=True)
    job = Push(transport=transport, withholding=withholding, **sending)
    read_only = [path for path in chosen.folders if not os.access(path, os.W_OK)]
    if read_only:
        raise ConfigureError(f"{read_only[0]} is read-only: what is sent could not be deleted from it")
    with ExitStack() as stack:
        adopted = [folder for path in chosen.folders if (folder := SpoolFolder.adopt(path)) is not None]
        for folder in adopted:
            stack.callback(folder.close)
        files = [str(file) for folder in adopted for file in sorted(folder.path.glob("*.jsonl"))]
        with (
            progress(files, doing="pushing", least=_BAR_FROM) if files else nullcontext() as advance,
            _interruptible(job, "the rest stays in the spool"),
        ):
            job.run_spool(adopted, progress=advance)
    running = len(chosen.folders) - len(adopted)
    notes = [f"not sent: {count(running, 'folder')} in use by running processes, which send the spans"]
    others = [f"not sent: {count(chosen.others, 'folder')} for another receiver"]
    return job, notes * bool(running) + others * bool(chosen.others)


@contextmanager
def _interruptible(job: Push, rest: str) -> Iterator[None]:
    """Say on Ctrl-C how many spans were sent."""
    try:
        yield
    except KeyboardInterrupt:
        more = "" if job.dry else f"; {rest}"
        say(f"mttp: interrupted after {count(job.pushed.spans, 'span')}{more}", error=True)
        raise


def _push_recordings(
    job: Push, paths: Sequence[str], progress_file: PushState, *, now: bool, restart: bool
) -> Sequence[Problem]:
    """Send the spans of recordings, and return their problems."""
    so_far = {} if job.dry else progress_file.load(restart=restart)
    job.shift = so_far.get("shift", time.time_ns() - latest(Scan(paths, arrays=False)) if now else 0)
    job.pushed = Pushed(spans=so_far.get("spans", 0), lost=Counter(so_far.get("lost", {})))

    def save(pushed: Pushed) -> None:
        progress_file.save(spans=pushed.spans, shift=job.shift, lost=dict(pushed.lost))

    if not job.dry:
        job.on_progress = save
        save(job.pushed)  # fails before anything is sent
    with progress(paths, doing="pushing", least=_BAR_FROM) as advance:
        scan = Scan(paths, arrays=True, as_written=True, progress=advance)
        with _interruptible(job, "run the same command again to resume"):
            job.run(scan, done=so_far.get("spans", 0))
    if not job.dry:
        progress_file.remove()
    return scan.problems


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
