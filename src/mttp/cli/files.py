"""Writing files of spans, in the format that the file name implies."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from mttp.codec import annotations as codec
from mttp.errors import ConfigureError, MissingExtra, MttpError
from mttp.model import ids
from mttp.model.episodes import Annotation
from mttp.model.spans import Link, Scope, SpanRecord
from mttp.model.version import __version__
from mttp.otlp.json import encode_records
from mttp.otlp.recording_files import part, whole
from mttp.otlp.whole_files import replacing
from mttp.reading import labels, parquet
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Format", "LateFactsFile", "Refuse", "Write", "beside", "late_facts", "write_whole", "writer"]

Write: TypeAlias = Callable[[Path, Iterable[SpanRecord]], int]
"""Writes spans to a file and returns their number."""
Refuse: TypeAlias = Callable[[SpanRecord, MttpError], None]
"""Called with a span that the format can't hold, and the error."""

_MESSAGES = (".mttp.jsonl", ".mttp.jsonl.gz", ".mttp.jsonl.zst")


class Format(str, Enum):
    """Format of a file of spans."""

    OTLP = "otlp"
    MESSAGES = "messages"
    PARQUET = "parquet"


def writer(target: Path, format: Format | None = None, *, refuse: Refuse | None = None) -> Write:
    """
    Return the function that writes `format`, by default the format that the name of `target` implies.

    Raises ConfigureError for an unknown name. Without `refuse`, a span that the format can't hold raises.
    """
    openers: dict[str, Callable[[Path], IO[bytes]]] = {
        ".jsonl": lambda path: path.open("wb"),
        ".json": lambda path: path.open("wb"),
        ".gz": lambda path: cast("IO[bytes]", gzip.open(path, "wb")),  # noqa: SIM115 - _lines closes it
        ".zst": _open_zstd,
    }
    format = format or _format(target)
    if format is Format.PARQUET:
        return parquet.write
    if target.suffix not in openers:
        raise ConfigureError(
            f"{target}: its name must end in .parquet, .jsonl, .jsonl.gz or .jsonl.zst, "
            "or in .mttp.jsonl, .mttp.jsonl.gz or .mttp.jsonl.zst for messages"
        )
    if format is Format.MESSAGES:
        opener = openers[target.suffix]
        return _lines(lambda path: _private(path, opener), lambda records: _messages(records, refuse))
    return _lines(openers[target.suffix], encode_records)


def _format(target: Path) -> Format:
    if target.suffix == ".parquet":
        return Format.PARQUET
    return Format.MESSAGES if target.name.endswith(_MESSAGES) else Format.OTLP


def _lines(
    open_: Callable[[Path], IO[bytes]], encode: Callable[[Iterable[SpanRecord]], Iterable[bytes]]
) -> Write:
    def write(path: Path, records: Iterable[SpanRecord]) -> int:
        written = 0

        def counted() -> Iterable[SpanRecord]:
            nonlocal written
            for record in records:
                written += 1
                yield record

        with open_(path) as file:
            for line in encode(counted()):
                file.write(line)  # a zstd file has no writelines
        return written

    return write


def _messages(records: Iterable[SpanRecord], refuse: Refuse | None) -> Iterator[bytes]:
    """
    Yield the lines of each span's messages; writing a span again gives equal lines.

    Messages of an evaluation that are not spans are written once, also if the recording has them twice.
    """
    from mttp.mist import span_messages  # imports pydantic
    from mttp.mist.messages import TraceSpan

    written: set[str] = set()
    for record in records:
        try:
            messages = span_messages.envelop(record, timestamp_ns=record.end_time or record.start_time)
        except MttpError as error:
            if refuse is None:
                raise
            refuse(record, error)
        else:
            for message in messages:
                if message.type == TraceSpan.TYPE or message.id not in written:
                    yield message.to_bytes() + b"\n"
                if message.type != TraceSpan.TYPE:
                    written.add(message.id)


def beside(path: Path) -> Path:
    """Return a new file that reading `path` includes and no recorder writes; its number is the time."""
    stamp = int(time.strftime("%Y%m%d%H%M%S", time.gmtime()))
    if path.is_file():
        first = whole(path)
        if first is not None and first.exists():
            raise ConfigureError(f"{path} is a part of {first}; name {first}")
        writer(path)
    elif not path.is_dir():
        raise ConfigureError(f"{path} is not a file or directory; name one recording")
    while True:
        target = part(path, stamp) if path.is_file() else path / f"annotations-{stamp}.jsonl"
        if not target.exists():
            return target
        stamp += 1


def write_whole(target: Path, records: Sequence[SpanRecord]) -> None:
    """Write the spans to a temporary file, then rename it; raises FileExistsError if `target` exists."""
    with replacing(target) as partial:
        writer(target)(partial, records)
        target.touch(exist_ok=False)  # of two processes only one gets the name


class LateFactsFile:
    """
    A new file beside a recording to which late facts are appended, each on the disk at once.

    It is made with the first of them. Raises ConfigureError if `recording` can't have one.
    """

    def __init__(self, recording: Path) -> None:
        if beside(recording).suffix == ".parquet":
            raise ConfigureError(f"{recording}: nothing can be appended to Parquet; give its directory")
        self._recording = recording
        self.path: Path | None = None
        """The file; None before the first late fact."""

    def add(self, annotation: Annotation, known: labels.KnownIds) -> SpanRecord:
        """Append an annotation; return its span."""
        (record,) = late_facts([annotation], known)
        while self.path is None:
            with suppress(FileExistsError):  # of two viewers only one gets the name
                target = beside(self._recording)
                target.touch(exist_ok=False)
                self.path = target
        line = b"".join(encode_records([record]))
        with self.path.open("ab") as file:
            file.write(_compressed(line, self.path))
            file.flush()
            os.fsync(file.fileno())
        return record


def _compressed(line: bytes, path: Path) -> bytes:
    """Return a line as a part of a file with that suffix."""
    if path.suffix == ".gz":
        return gzip.compress(line)
    if path.suffix == ".zst":
        return cast("bytes", _zstandard(path).compress(line))
    return line


def _private(path: Path, opener: Callable[[Path], IO[bytes]]) -> IO[bytes]:
    """Open a new file of messages that only its owner can read, like those of the transports."""
    path.chmod(0o600)
    return opener(path)


def _open_zstd(path: Path) -> Any:
    return _zstandard(path).open(path, "wb")


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose=f"writing {path}") from error
    return zstandard


def late_facts(annotations: Sequence[Annotation], known: labels.KnownIds) -> Iterator[SpanRecord]:
    """
    Yield a span for each annotation, in the run of its episode.

    Those without a revision get one; later rows have higher ones.
    """
    scopes: dict[str, Scope] = {}
    now = time.time_ns()
    for position, annotation in enumerate(annotations):
        run_id = annotation.run_id
        resource = {a.SERVICE_NAME: "mttp", a.RUN_ID: run_id}
        scope = scopes.setdefault(
            run_id, Scope(name="mttp", version=__version__, schema_url=SCHEMA_URL, resource=resource)
        )
        place = annotation.step_span_id or known.roots.get(annotation.episode, "")
        yield SpanRecord(
            trace_id=f"{ids.trace_id():032x}",
            span_id=f"{ids.span_id():016x}",
            name=names.ANNOTATE,
            start_time=now + position,
            end_time=now + position,
            attributes=codec.encode(replace(annotation, revision=annotation.revision or now + position), []),
            links=[Link(annotation.episode, place, {})] if place else (),
            scope=scope,
        )
