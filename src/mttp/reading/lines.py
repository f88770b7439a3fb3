"""Decodes the lines of a file, OTLP JSON or messages, to spans and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from mttp import formats
from mttp.codec.conformity import Conformity
from mttp.errors import EnvelopeError, ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.json_decode import LineError, decode_documents
from mttp.otlp.recording_files import File
from mttp.otlp.streams import Cut, FilePart, Progress, Skipped, StreamLine, read_lines
from mttp.reading.problems import Kind, Problem, Problems

__all__ = ["Columns", "Decoded", "LineFault", "Rows", "decode", "read_blocks"]

_MAX_LEADING_FAULTS = 1000
"""Number of faults before the first valid line after which a file is not a recording."""
_MAX_BROKEN_LINES = 100_000
"""Number of consecutive broken lines after which the rest of a file is not read."""
_GROUP_BYTES = 4 << 20
"""Length of lines that become rows together."""
_TRACES_PREFIX = b'{"resourceSpans"'
_MESSAGE_PREFIX = b'{"version":'
"""The usual start of a message; messages with another order of keys are first tried as traces."""
_MESSAGE_READER = "mttp.mist.message_spans"
"""The module that reads messages; it imports pydantic."""
_EXPECTED = (
    "expected OTLP JSON lines or messages (plain, .gz or .zst), or a .parquet file from `mttp convert`"
)

_REST_SKIPPED = "the rest of the file was not read"
_TRUNCATED: tuple[Kind, str] = (
    "truncated_line",
    "the last line is cut short; the lines before it were read",
)


_Item: TypeAlias = "StreamLine | Skipped | Cut"


class Columns(NamedTuple):
    """What spans become in the process that decodes them: columns."""

    module: str
    """The module whose `SpanRows` makes them."""
    of_batches: str
    """The module whose `BatchRows` makes them of many spans at once."""
    arguments: tuple[Any, ...]
    """Plain arguments of both."""


class Rows(NamedTuple):
    """Spans as rows of columns."""

    batch: Any
    """The Arrow batch that `SpanRows` or `BatchRows` made of them."""


class LineFault(NamedTuple):
    """One fault of a line."""

    kind: Kind
    message: str
    line: int
    """Line number, from 1."""
    trace_id: str | None = None
    """Trace id of the span with the fault, if it could be read."""


class Decoded(NamedTuple):
    """The decoded content of one line."""

    spans: list[Any] | None
    """Span records, or `Rows`; None if the line is not part of a recording."""
    faults: list[LineFault]


def decode(
    path: Path,
    *,
    arrays: bool,
    part: FilePart | None = None,
    progress: Progress | None = None,
    as_written: bool = False,
    columns: Columns | None = None,
) -> Iterator[Decoded]:
    """
    Decode the lines of a file, or of a part of it, one by one.

    Values that do not conform to the registry are left out, unless `as_written` is set.
    With `columns` and without `arrays`, most spans become `Rows`, and many lines are decoded as one.
    """
    items = read_lines(path, share=part, progress=progress)
    conformity = Conformity(as_written=as_written)
    if columns is not None and not arrays:
        return _in_columns(items, conformity, columns)
    return (_conforming(item, conformity, arrays=arrays) for item in items)


def read_blocks(
    file: File, lines: Iterable[Decoded], problems: Problems
) -> Generator[list[SpanRecord], None, bool]:
    """
    Yield the spans line by line; return whether the file is a recording.

    Raises ReadError if it is not a recording and the caller named it.
    """
    waiting: list[Problem] = []
    others = _Others()
    is_recording = False
    broken_lines = 0
    for spans, faults in lines:
        wrong = [fault for fault in faults if not others.take(fault)]
        broken_lines = broken_lines + 1 if wrong and not spans else 0
        if broken_lines == _MAX_BROKEN_LINES:
            message = f"{_MAX_BROKEN_LINES:,} lines in a row are broken; {_REST_SKIPPED}"
            wrong.append(LineFault("cut_stream", message, wrong[0].line))
        waiting += [_problem(file.path, fault) for fault in wrong]
        is_recording = is_recording or spans is not None
        if is_recording:
            for problem in waiting:
                problems.add(problem)
            waiting.clear()
        if spans:
            yield spans
        if len(waiting) >= _MAX_LEADING_FAULTS or broken_lines == _MAX_BROKEN_LINES:
            break
    for fault in others.faults():
        problems.add(_problem(file.path, fault))
    if not is_recording:
        _refuse(file, waiting, problems)
    return is_recording


class _Others:
    """Counts messages that are not spans, by type: a file may have any number of them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def take(self, fault: LineFault) -> bool:
        """Count the fault if it is such a message; return whether it is."""
        if fault.kind == "other_message":
            self._counts[fault.message] += 1
            self._first.setdefault(fault.message, fault.line)
        return fault.kind == "other_message"

    def faults(self) -> Iterator[LineFault]:
        """One fault per type."""
        for kind, count in self._counts.items():
            nouns = "messages are not spans and were" if count > 1 else "message is not a span and was"
            yield LineFault("other_message", f"{count:,} {kind} {nouns} left out", self._first[kind])


def _problem(path: Path, fault: LineFault) -> Problem:
    kind, message, line, trace_id = fault
    return Problem(kind=kind, message=message, file=str(path), line=line, trace_id=trace_id)


def _conforming(item: _Item, conformity: Conformity, *, arrays: bool) -> Decoded:
    """The decoded line without values that do not conform, which become faults."""
    line = _decoded(item, arrays=arrays)
    if not line.spans:
        return line
    examined = partial(_examined, [item], conformity, line.faults)
    return Decoded([examined(span, 0) for span in line.spans], line.faults)


def _examined(
    lines: Sequence[_Item], conformity: Conformity, faults: list[LineFault], span: SpanRecord, place: int
) -> SpanRecord:
    """Return a span of one of the lines without values that do not conform, which become faults."""
    conforming, misfits = conformity.examine(span)
    faults += (LineFault(value.kind, value.message, lines[place].number, value.trace_id) for value in misfits)
    return conforming


def _in_columns(items: Iterable[_Item], conformity: Conformity, columns: Columns) -> Iterator[Decoded]:
    """Yield decoded lines, many as one while all are written as ours are, and from then on one by one."""
    rows = import_module(columns.of_batches).BatchRows(*columns.arguments)
    is_ours = True
    for group in _groups(items):
        faults: list[LineFault] = []
        spans = None
        if is_ours and _is_traces(group[0]):
            examined = partial(_examined, group, conformity, faults)
            contents = [item.content for item in group if _is_traces(item)]
            spans = rows.of_lines(contents, examined=examined)
            is_ours = spans is not None
        if spans is not None:
            yield Decoded(spans, faults)
        else:
            yield from (_conforming(item, conformity, arrays=False) for item in group)


def _groups(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield lines of traces in groups of about `_GROUP_BYTES`, and other lines alone."""
    group: list[_Item] = []
    size = 0
    for item in items:
        if group and (size >= _GROUP_BYTES or not _is_traces(item)):
            yield group
            group, size = [], 0
        if _is_traces(item):
            group.append(item)
            size += len(item.content)
        else:
            yield [item]
    if group:
        yield group


def _is_traces(item: _Item) -> TypeGuard[StreamLine]:
    """Return whether a line begins as traces do and is not cut."""
    return isinstance(item, StreamLine) and item.ended and item.content.startswith(_TRACES_PREFIX)


def _decoded(item: _Item, *, arrays: bool) -> Decoded:
    if isinstance(item, Skipped):
        return Decoded(None, [LineFault("broken_line", item.reason, item.number)])
    problems: list[tuple[Kind, str]] = []
    spans: list[Any] | None = None
    try:
        if item.content.startswith(_MESSAGE_PREFIX) and isinstance(item, StreamLine):
            spans, problems = _message(item, arrays=arrays)
        else:
            spans, reasons = decode_documents(item.content, arrays=arrays)
            problems = [("broken_span", reason) for reason in reasons]
    except LineError as error:
        spans, problems = _without_traces(item, error, arrays=arrays)
    if isinstance(item, Cut):
        problems = [("cut_stream", f"{item.reason}; the lines before it were read")]
    return Decoded(spans, [LineFault(kind, message, item.number) for kind, message in problems])


def _message(item: StreamLine, *, arrays: bool) -> tuple[list[SpanRecord] | None, list[tuple[Kind, str]]]:
    """The spans and faults of a line that starts like a message; None if it is none."""
    try:
        return _message_spans(item.content, arrays=arrays)
    except EnvelopeError as error:
        return (None, [("broken_message", str(error))]) if item.ended else ([], [_TRUNCATED])


def _without_traces(
    item: StreamLine | Cut, error: LineError, *, arrays: bool
) -> tuple[list[SpanRecord] | None, list[tuple[Kind, str]]]:
    """The spans and faults of a line that is no valid OTLP JSON."""
    begins_as_traces = item.content.startswith(_TRACES_PREFIX)
    with suppress(EnvelopeError):
        if not begins_as_traces:
            return _message_spans(item.content, arrays=arrays)
    rest: list[SpanRecord] | None = [] if begins_as_traces else None
    if error.kind == "broken_line" and isinstance(item, StreamLine) and not item.ended:
        return rest, [_TRUNCATED]
    return rest, [(error.kind, str(error))]


def _message_spans(line: bytes, *, arrays: bool) -> tuple[list[SpanRecord], list[tuple[Kind, str]]]:
    """Return the spans and faults of a message; raises EnvelopeError if the line is none."""
    read: Callable[..., tuple[list[SpanRecord], list[tuple[Kind, str]]]]
    read = import_module(_MESSAGE_READER).message_spans
    return read(line, arrays=arrays)


def _refuse(file: File, faults: list[Problem], problems: Problems) -> None:
    if not faults:
        problems.add(Problem(kind="empty_file", message="the file is empty", file=str(file.path)))
        return
    if all(problem.kind == "cut_stream" for problem in faults):  # a crash cut a compressed file at its start
        for problem in faults:
            problems.add(problem)
        return
    advice = formats.hint(file.path) or _EXPECTED
    reason = f"this is not a recording (line {faults[0].line}: {faults[0].message}); {advice}"
    refused = Problem(kind="not_traces", message=reason, file=str(file.path))
    if file.named:
        raise ReadError(str(refused))
    problems.add(refused)
