"""`mttp convert`: convert a recording to another format, and report what the format can't hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.files import Format, replace, writer
from mttp.cli.output import Strict, finish, progress, say
from mttp.cli.rendering.words import count, visible
from mttp.errors import ConfigureError
from mttp.otlp.recording_files import File, is_parquet
from mttp.reading import copies
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import find

__all__ = ["convert"]


def convert(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="IN... OUT",
            help="Recordings: files, globs or directories; then the output: .parquet, .jsonl, .jsonl.gz, "
            ".jsonl.zst, or .mttp.jsonl for messages.",
        ),
    ],
    *,
    to: Annotated[
        Format | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Format of OUT: otlp, messages or parquet; by default, its file name decides.",
        ),
    ] = None,
    beside: Annotated[
        bool, typer.Option("--beside", help="Write a Parquet copy beside each file, instead of OUT.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    strict: Strict = False,
) -> None:
    """
    Convert a recording to another format.

    Writes every span unchanged to one file: Parquet, OTLP JSON lines or messages.
    In Parquet each span is a row, and each attribute of the conventions is a typed column with its name.
    With --beside, each file gets its own copy, such as a.jsonl.parquet beside a.jsonl; mttp reads the copy
    instead of the file until the file changes.

    \b
    Examples:
      mttp convert runs/cartpole.jsonl cartpole.parquet
      mttp convert cartpole.parquet cartpole.jsonl.zst
      mttp convert 'runs/*.jsonl' all.jsonl.gz --overwrite
      mttp convert runs/cartpole.jsonl cartpole.mttp.jsonl
      mttp convert --beside runs/

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    if beside:
        _copy(paths)
    elif len(paths) < 2:
        raise typer.BadParameter("give an output file OUT, or --beside")
    else:
        _convert(paths[:-1], Path(paths[-1]), to, overwrite=overwrite, strict=strict)


def _copy(sources: list[str]) -> None:
    """Write a copy of each file whose copy is missing or out of date."""
    for file in find(sources):
        if isinstance(file, File) and not is_parquet(file.path) and copies.find(file.path) is None:
            copy = copies.make(file.path)
            say(f"wrote {copy} ({copy.stat().st_size:,} bytes)")


def _convert(sources: list[str], target: Path, to: Format | None, *, overwrite: bool, strict: bool) -> None:
    refused: list[str] = []
    write = writer(target, to, refuse=lambda span, error: refused.append(f"span {span.name!r}: {error}"))
    if target.exists() and not overwrite:
        raise ConfigureError(f"{target} exists; --overwrite replaces it")
    partial = target.with_name(f".{target.name}.partial")
    try:
        with progress(sources) as advance:
            scan = Scan(sources, arrays=True, as_written=True, progress=advance)
            written = write(partial, scan)
        replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    say(f"wrote {count(written - len(refused), 'span')} to {target} ({target.stat().st_size:,} bytes)")
    for reason in refused:
        scan.add_problem("unwritable_span", f"{reason}; it was omitted")
    _print_omitted(scan.problems)
    finish(scan.problems, strict=strict)


def _print_omitted(problems: list[Problem]) -> None:
    """Print what the format can't hold."""
    for problem in problems:
        if problem.kind in ("other_message", "unwritable_span"):
            say(visible(f"mttp: {problem}"), error=True)
