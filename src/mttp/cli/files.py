"""Files of spans that commands write, in the format that their name says."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from mttp.errors import ConfigureError, MissingExtra
from mttp.reading import parquet
from mttp.spans import SpanRecord
from mttp.wire.otlp_json import encode_records

__all__ = ["Write", "writer"]

Write: TypeAlias = Callable[[Path, Iterable[SpanRecord]], int]
"""Writes spans to a file; how many there were."""


def writer(target: Path) -> Write:
    """What writes the format of `target`; raises ConfigureError where its name says none."""
    writers: dict[str, Write] = {
        ".parquet": parquet.write,
        ".jsonl": _lines(lambda path: path.open("wb")),
        ".json": _lines(lambda path: path.open("wb")),
        ".gz": _lines(lambda path: cast("IO[bytes]", gzip.open(path, "wb"))),  # noqa: SIM115 - _lines closes it
        ".zst": _lines(_open_zstd),
    }
    if target.suffix not in writers:
        raise ConfigureError(f"{target}: its name must end in .parquet, .jsonl, .jsonl.gz or .jsonl.zst")
    return writers[target.suffix]


def _lines(open_: Callable[[Path], IO[bytes]]) -> Write:
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
