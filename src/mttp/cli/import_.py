"""`mttp import`: record the episodes of another library's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import Json, fail, print_json, say, working
from mttp.errors import ConfigureError, ReadError
from mttp.otlp.whole_files import replacing
from mttp.pages.words import count, visible

if TYPE_CHECKING:
    from mttp.integrations.importing import ImportedFile

__all__ = ["import_"]

_SHOWN = 3
"""Number of unreadable records of a file that are printed."""


def import_(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files of other libraries, or directories of them."),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The recording to write: .jsonl, .jsonl.gz or .jsonl.zst; by default NAME.imported.jsonl "
            "in the current directory, with the name of the first path.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="The format of all files; by default, their content decides."
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Kind of the recorded run: train, eval or replay.")
    ] = "train",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a record can't be read.")] = False,
) -> None:
    """
    Record the episodes of another library's files.

    Reads rollouts, traces and evaluation logs that other libraries wrote, and writes one recording, which
    every other command reads. The content of a file decides its format. What files of a format do not hold,
    and each record or attribute that can't be read, is printed.
    Episodes have the ids and times of the file: a file that is imported twice gives equal episodes.

    \b
    Examples:
      mttp import outputs/evals/gsm8k/traces.jsonl
      mttp import checkpoints/completions/ -o runs/grpo.jsonl
      mttp import logs/ --kind eval --json

    \b
    Exit codes:
      0  Everything is fine.
      1  A record or attribute could not be read, and --strict is given.
      2  Wrong usage, a file that can't be read, or no episode.
    """
    from mttp import formats
    from mttp.integrations.importing import find_files

    candidates = [*find_files(paths)] if format is None else [(path, format) for path in _named(paths)]
    if format is not None:
        formats.format_named(format)
    files = [(path, name) for path, name in candidates if name is not None]
    unknown = [path for path, name in candidates if name is None]
    if not files:
        raise ReadError(f"no file in {', '.join(paths)} has a known format: {', '.join(formats.FORMATS)}")
    target = output or Path(f"{Path(paths[0]).resolve().name.partition('.')[0]}.imported.jsonl")
    _write(files, unknown, target, kind, overwrite=overwrite, as_json=as_json, strict=strict)


def _named(paths: Sequence[str]) -> list[Path]:
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise ReadError(f"{missing[0]} is not a file; with --format, give files")
    return [Path(path) for path in paths]


def _write(
    files: Sequence[tuple[Path, str]],
    unknown: Sequence[Path],
    target: Path,
    kind: str,
    *,
    overwrite: bool,
    as_json: bool,
    strict: bool,
) -> None:
    import mttp
    from mttp.integrations.importing import import_files

    if target.exists() and not overwrite:
        raise ConfigureError(f"{target} exists; --overwrite replaces it")
    if not target.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        raise ConfigureError(f"{target}: its name must end in .jsonl, .jsonl.gz or .jsonl.zst")
    facts = {"imported": [{"file": path.name, "format": name} for path, name in files]}
    with replacing(target, keep_mode=True) as partial:
        with (
            working("importing"),
            mttp.configure(
                f"file://{partial}",
                run=target.name.partition(".")[0],
                kind=kind,
                config=facts,
                provenance=False,
            ) as session,
        ):
            imported = import_files(files)
        if not sum(file.episodes for file in imported):
            raise ReadError(f"no episode in {', '.join(str(path) for path, _ in files)}")
    if as_json:
        document = {
            "output": str(target),
            "files": [file.to_dict() for file in imported],
            "not_recognized": [str(path) for path in unknown],
            "faults": dict(session.stats.faults),
        }
        print_json(document)
    else:
        _print(imported, unknown, target)
    left_out = sum(len(file.unreadable) for file in imported)
    fail([f"{count(left_out, 'record')} could not be read"] if strict and left_out else [])


def _print(imported: Sequence[ImportedFile], unknown: Sequence[Path], target: Path) -> None:
    for file in imported:
        say(visible(f"{file.path}: {file.title}, {count(file.episodes, 'episode')}"))
        for record in file.unreadable[:_SHOWN]:
            say(visible(f"mttp: {file.path}: {record.place} {record.reason}; it was left out"), error=True)
        if len(file.unreadable) > _SHOWN:
            say(f"mttp: {count(len(file.unreadable) - _SHOWN, 'more record')} left out", error=True)
    for title, lacks in {file.title: file.lacks for file in imported}.items():
        say(
            visible(fill(f"not in {title}: {', '.join(lacks)}", width=80, subsequent_indent="  "), lines=True)
        )
    for path in unknown:
        say(visible(f"mttp: {path} has no known format; it was left out"), error=True)
    say(visible(f"wrote {count(sum(file.episodes for file in imported), 'episode')} to {target}"))
