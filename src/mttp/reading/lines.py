"""The spans of one file of lines, OTLP JSON or messages, and what is wrong with its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mttp.codec.conformity import Conformity
from mttp.errors import EnvelopeError, ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.json_decode import LineError, Shorten, decode_line, decode_spans
from mttp.otlp.recording_files import File
from mttp.otlp.streams import Cut, FilePart, Progress, Skipped, StreamLine, read_lines
from mttp.reading.episode_summary import EpisodeSummary, IsOpen
from mttp.reading.problems import Kind, Problem, Problems

__all__ = ["Decoded", "LineFault", "decode", "note", "read_blocks"]

_PATIENCE = 1000
"""After so many lines without a good one, a file is not a recording."""
_BARREN = 100_000
"""After so many broken lines in a row the rest of a file is not read."""
_BEGINNING = b'{"resourceSpans"'
_MESSAGE = b'{"version":'
"""How nearly everybody begins a message; others' are found to be no traces first."""
_EXPECTED = (
    "expected OTLP JSON lines or messages (plain, .gz or .zst), or a .parquet file from `mttp convert`"
)

_LEFT = "the rest of the file was not read"
_TRUNCATED: tuple[Kind, str] = (
    "truncated_line",
    "the last line is cut short; what stands before it was read",
)


class LineFault(NamedTuple):
    """One thing that is wrong with a line."""

    kind: Kind
    message: str
    line: int
    """The line, from 1."""
    trace_id: str | None = None
    """The trace, where it is about a span that could be read."""


class Decoded(NamedTuple):
    """What one line holds."""

    spans: list[Any] | None
    """Span records, or `EpisodeSummary`s of whole episodes where asked; None if the line is no recording."""
    faults: list[LineFault]


def decode(
    path: Path,
    *,
    arrays: bool,
    share: FilePart | None = None,
    progress: Progress | None = None,
    is_open: IsOpen | None = None,
    as_written: bool = False,
) -> Iterator[Decoded]:
    """
    The file's lines, or those of a share of it, decoded one by one.

    Values that don't conform to the registry are left out, unless they are wanted as they were written.
    With `is_open`, which is asked line by line, episodes that are whole in a line are one `EpisodeSummary`.
    """
    shorten: Shorten | None = None
    if is_open is not None:
        from mttp.reading.whole import shortened  # which only a summary has a use for

        shorten = partial(shortened, is_open=is_open)
    items = read_lines(path, share=share, progress=progress)
    conformity = Conformity(as_written=as_written)
    return (_conforming(item, conformity, arrays=arrays, shorten=shorten) for item in items)


def read_blocks(
    file: File, lines: Iterable[Decoded], problems: Problems
) -> Generator[list[SpanRecord], None, bool]:
    """
    The spans line by line; whether the file is a recording at all.

    Raises ReadError where it isn't one although the caller named it.
    """
    held: list[Problem] = []
    others = _Others()
    is_recording = False
    barren = 0
    for spans, faults in lines:
        wrong = [fault for fault in faults if not others.take(fault)]
        barren = barren + 1 if wrong and not spans else 0
        if barren == _BARREN:
            wrong.append(
                LineFault("cut_stream", f"{_BARREN:,} lines in a row are broken; {_LEFT}", wrong[0].line)
            )
        held += [_problem(file.path, fault) for fault in wrong]
        is_recording = is_recording or spans is not None
        if is_recording:
            for problem in held:
                problems.add(problem)
            held.clear()
        if spans:
            yield spans
        if len(held) >= _PATIENCE or barren == _BARREN:
            break
    note(file, others.faults(), problems)
    if not is_recording:
        _refuse(file, held, problems)
    return is_recording


def note(file: File, faults: Iterable[LineFault], problems: Problems) -> None:
    """Take note of what is wrong with a file's lines."""
    for fault in faults:
        problems.add(_problem(file.path, fault))


class _Others:
    """Messages that are no spans, by type: a file may hold any number of them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def take(self, fault: LineFault) -> bool:
        """Take note of a message, if that is what the fault is about."""
        if fault.kind == "other_message":
            self._counts[fault.message] += 1
            self._first.setdefault(fault.message, fault.line)
        return fault.kind == "other_message"

    def faults(self) -> Iterator[LineFault]:
        """One for each type."""
        for kind, count in self._counts.items():
            are = "messages are no spans" if count > 1 else "message is no span"
            yield LineFault("other_message", f"{count:,} {kind} {are}, and left out", self._first[kind])


def _problem(path: Path, fault: LineFault) -> Problem:
    kind, message, line, trace_id = fault
    return Problem(kind=kind, message=message, file=str(path), line=line, trace_id=trace_id)


def _conforming(
    item: StreamLine | Skipped | Cut, conformity: Conformity, *, arrays: bool, shorten: Shorten | None
) -> Decoded:
    """The line's spans without what does not conform, and what that was."""
    line = _decoded(item, arrays=arrays, shorten=shorten)
    if not line.spans:
        return line
    spans: list[Any] = []
    for span in line.spans:
        if isinstance(span, EpisodeSummary):
            spans.append(span)
            continue
        kept, misfits = conformity.examine(span)
        spans.append(kept)
        line.faults.extend(LineFault(one.kind, one.message, item.number, one.trace_id) for one in misfits)
    return Decoded(spans, line.faults)


def _decoded(item: StreamLine | Skipped | Cut, *, arrays: bool, shorten: Shorten | None) -> Decoded:
    if isinstance(item, Skipped):
        return Decoded(None, [LineFault("broken_line", item.reason, item.number)])
    found: list[tuple[Kind, str]] = []
    spans: list[Any] | None = None
    try:
        if item.content.startswith(_MESSAGE) and isinstance(item, StreamLine):
            spans, found = _message(item, arrays=arrays)
        else:
            spans = decode_line(item.content, arrays=arrays, shorten=shorten)
    except LineError as error:
        spans, found = _salvaged(item, error, arrays=arrays)
    if isinstance(item, Cut):
        found = [("cut_stream", f"{item.reason}; what stands before it was read")]
    return Decoded(spans, [LineFault(kind, message, item.number) for kind, message in found])


def _message(item: StreamLine, *, arrays: bool) -> tuple[list[SpanRecord], list[tuple[Kind, str]]]:
    """What a line that begins as messages do holds."""
    from mttp.reading.message_spans import message_spans  # pydantic, which other lines do without

    try:
        return message_spans(item.content, arrays=arrays)
    except EnvelopeError as error:
        return [], [("broken_message", str(error)) if item.ended else _TRUNCATED]


def _salvaged(
    item: StreamLine | Cut, error: LineError, *, arrays: bool
) -> tuple[list[SpanRecord] | None, list[tuple[Kind, str]]]:
    """What can be read of a line that is not as it should be."""
    if error.kind == "broken_line":
        with suppress(LineError):
            block, reasons = decode_spans(item.content, arrays=arrays)
            if block or reasons:
                return block, [("broken_span", reason) for reason in reasons]
    begins_as_traces = item.content.startswith(_BEGINNING)
    with suppress(EnvelopeError):
        from mttp.reading.message_spans import message_spans

        if not begins_as_traces:
            return message_spans(item.content, arrays=arrays)
    rest: list[SpanRecord] | None = [] if begins_as_traces else None
    if error.kind == "broken_line" and isinstance(item, StreamLine) and not item.ended:
        return rest, [_TRUNCATED]
    return rest, [(error.kind, str(error))]


def _refuse(file: File, held: list[Problem], problems: Problems) -> None:
    if not held:
        problems.add(Problem(kind="empty_file", message="the file is empty", file=str(file.path)))
        return
    if all(
        problem.kind == "cut_stream" for problem in held
    ):  # a compressed file that a crash left at its start
        for problem in held:
            problems.add(problem)
        return
    reason = f"this is not a recording (line {held[0].line}: {held[0].message}); {_EXPECTED}"
    refused = Problem(kind="not_traces", message=reason, file=str(file.path))
    if file.named:
        raise ReadError(str(refused))
    problems.add(refused)
