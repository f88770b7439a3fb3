"""`mttp convert`: a recording in another format, with nothing lost."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Annotated, Any, cast

import typer

from mttp.cli.output import Strict, finish, progress
from mttp.errors import ConfigureError, MissingExtra
from mttp.reading import parquet
from mttp.reading.scanning import Scan
from mttp.report.words import count
from mttp.spans import SpanRecord
from mttp.wire.otlp_json import encode_records

__all__ = ["convert"]


def convert(
    sources: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Recordings: files, globs or directories.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .parquet, .jsonl, .jsonl.gz or .jsonl.zst file.")
    ],
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    strict: Strict = False,
) -> None:
    """
    Write a recording in another format.

    Every span is written as it is, to one Parquet file or one of OTLP JSON lines.
    In Parquet a span is a row, and an attribute of the convention a typed column of its name.

    \b
    Examples:
      mttp convert runs/cartpole.jsonl cartpole.parquet
      mttp convert cartpole.parquet cartpole.jsonl.zst
      mttp convert 'runs/*.jsonl' all.jsonl.gz --overwrite
    """
    write = _writer(target)
    if target.exists() and not overwrite:
        raise ConfigureError(f"{target} exists; --overwrite replaces it")
    partial = target.with_name(f".{target.name}.partial")
    try:
        with progress(sources) as advance:
            scan = Scan(sources, arrays=True, progress=advance)
            written = write(partial, scan)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    print(f"wrote {count(written, 'span')} to {target} ({target.stat().st_size:,} bytes)")
    finish(scan.problems, strict=strict)


_Write = Callable[[Path, Iterable[SpanRecord]], int]


def _writer(target: Path) -> _Write:
    writers: dict[str, _Write] = {
        ".parquet": parquet.write,
        ".jsonl": _lines(lambda path: path.open("wb")),
        ".json": _lines(lambda path: path.open("wb")),
        ".gz": _lines(lambda path: cast("IO[bytes]", gzip.open(path, "wb"))),  # noqa: SIM115 - _lines closes it
        ".zst": _lines(_open_zstd),
    }
    if target.suffix not in writers:
        raise ConfigureError(f"{target}: OUT must end in .parquet, .jsonl, .jsonl.gz or .jsonl.zst")
    return writers[target.suffix]


def _lines(open_: Callable[[Path], IO[bytes]]) -> _Write:
    def write(path: Path, records: Iterable[SpanRecord]) -> int:
        written = 0

        def counted() -> Iterable[SpanRecord]:
            nonlocal written
            for record in records:
                written += 1
                yield record

        with open_(path) as file:
            for line in encode_records(counted()):
                file.write(line)  # a zstd file has no writelines
        return written

    return write


def _open_zstd(path: Path) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose=f"writing {path}") from error
    return zstandard.open(path, "wb")
