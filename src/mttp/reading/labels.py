"""
Reads labels of episodes and steps from a table, CSV or JSON lines.

A row has `trace_id` (the first digits are enough), optionally `step` (its index or span id), and either `key`
and `value`, or a column per key. Empty cells are ignored.
"""

from __future__ import annotations

import csv
import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any, Final

from mttp.codec import annotations as codec
from mttp.codec import summary_fields
from mttp.errors import ReadError
from mttp.model.episodes import Annotation, Reward
from mttp.model.keys import name_key
from mttp.otlp import regular_files
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import known_values

__all__ = ["ABOUT", "MAX_BYTES", "KnownIds", "LabelRow", "known", "rows", "stated"]

MAX_BYTES: Final = 256 << 20
"""Largest table of labels, in bytes."""

ABOUT = ("trace_id", "step", "by", "grader", "grader_kind", "grader_version", "explanation")
"""Columns for the target and the author of a row; every other column is a key."""

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_HEX = re.compile(r"[0-9a-f]{1,32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One row of a table of labels."""

    place: str
    """File and line, e.g. `labels.csv:3`."""
    cells: Mapping[str, Any]
    """Non-empty cells by column."""
    fault: str = ""
    """What is wrong with the row, if it can't be parsed."""


def rows(path: Path) -> list[LabelRow]:
    """The rows of a table; raises ReadError if it can't be read or its columns are invalid."""
    read = _json_rows if path.suffix in _JSON_SUFFIXES else _csv_rows
    try:
        text = regular_files.read(path, MAX_BYTES).decode("utf-8-sig")
        return list(read(path, StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReadError(f"{path} is not UTF-8 text: {error}; save it as UTF-8") from error


def _csv_rows(path: Path, file: Iterable[str]) -> Iterator[LabelRow]:
    reader = csv.reader(file, strict=True)
    header = [name.strip() for name in next(reader, [])]
    _check_columns(f"{path}:1", header)
    if header.count("trace_id") != 1:
        raise ReadError(
            f"{path}:1: there is no column trace_id; add one with the trace id of each row's episode"
        )
    for cells in reader:
        place = f"{path}:{reader.line_num}"
        if len(cells) > len(header):
            yield LabelRow(place, {}, f"it has {len(cells)} cells, but there are {len(header)} columns")
        elif any(cell.strip() for cell in cells):
            named = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
            yield LabelRow(place, {name: cell for name, cell in named.items() if cell})


def _json_rows(path: Path, file: Iterable[str]) -> Iterator[LabelRow]:
    for number, line in enumerate(file, start=1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield LabelRow(place, {}, f"it is not JSON: {error}")
            continue
        if not isinstance(cells, dict):
            yield LabelRow(place, {}, "it is not a JSON object; write one object per line")
            continue
        _check_columns(place, [*cells])
        yield LabelRow(place, {name: cell for name, cell in cells.items() if cell is not None and cell != ""})


def _check_columns(place: str, columns: Sequence[str]) -> None:
    """Raise ReadError for unnamed, duplicate or conflicting columns."""
    keys = {name: name if name in ABOUT else name_key(name) for name in columns}
    if not all(keys.values()):
        raise ReadError(f"{place}: a column has no name; name it, or leave it out")
    long = [name for name in keys if name in ("key", "value")]
    others = [name for name in keys if name not in ABOUT and name not in long]
    if long and (len(long) < 2 or others):
        raise ReadError(f"{place}: give key and value, or a column per key, not {', '.join(long + others)}")
    for key, count in Counter([keys[name] for name in columns]).items():
        if count > 1:
            same = ", ".join(repr(name) for name in columns if keys[name] == key)
            raise ReadError(f"{place}: the columns {same} are all {key!r}; rename or drop some")


def stated(row: LabelRow, *, by: str | None = None) -> list[Annotation]:
    """
    The annotations of a row; their `episode` is the prefix of the trace id in the row.

    Raises ValueError if the row is invalid.
    """
    if row.fault:
        raise ValueError(row.fault)
    cells = row.cells
    grader = {name: _text(cells.get(name)) for name in ("grader", "grader_kind", "grader_version")}
    by = _text(cells.get("by")) or by
    values = {name: cell for name, cell in cells.items() if name not in ABOUT}
    if "key" in values or "value" in values:
        if len(values) < 2:
            raise ValueError("it has a key without a value, or a value without a key")
        values = {str(values["key"]): values["value"]}
    target = Annotation(
        episode=_trace_id(cells.get("trace_id")),
        by=by or grader["grader"],
        explanation=_text(cells.get("explanation")),
        **_step(cells.get("step")),
    )
    return [_annotation(target, key, value, grader) for key, value in values.items()]


def _annotation(target: Annotation, key: str, value: Any, grader: Mapping[str, str | None]) -> Annotation:
    kind = codec.kind(key)
    name = name_key(key) if kind == "fact" else key
    if kind == codec.PREFERENCE or not name:
        raise ValueError(f"{key!r} is not a valid key")
    parsed = _value(kind, value)
    if kind != "score":
        return replace(target, kind=kind, key=name, value=parsed)
    scoring = Reward(
        value=parsed,
        grader=grader["grader"] or target.by,
        grader_kind=grader["grader_kind"],
        grader_version=grader["grader_version"],
        explanation=target.explanation,
    )
    return replace(target, kind=kind, key=name, value=parsed, reward=scoring)


def _value(kind: str, value: Any) -> Any:
    """The value of a cell, for an annotation of this kind."""
    if kind in ("score", "advantage"):
        number = _scalar(value)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise ValueError(f"{kind} is {value!r}, expected a number")
        return float(number)
    outcomes = known_values(a.EPISODE_OUTCOME)
    if kind == "outcome" and value not in outcomes:
        raise ValueError(f"outcome is {value!r}, expected one of {', '.join(outcomes)}")
    if kind in ("label", "comment", "outcome"):
        return _text(value)
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """The text of a cell as a number or boolean, if it is written as one."""
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    if not _NUMBER.fullmatch(value):
        return value
    is_integer = value.lstrip("+-").isdecimal() and len(value) < 19
    return int(value) if is_integer else float(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _trace_id(value: Any) -> str:
    trace_id = str(value or "").strip().lower()
    if not _HEX.fullmatch(trace_id):
        raise ValueError(
            f"trace_id is {value!r}, expected up to 32 hexadecimal digits" if value else "it has no trace_id"
        )
    return trace_id


def _step(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    written = str(value).strip().lower()
    if _SPAN_ID.fullmatch(written):
        return {"step_span_id": written}
    if not written.isdecimal():
        raise ValueError(f"step is {value!r}, expected an index from 0 or a span id of 16 hexadecimal digits")
    return {"step": int(written)}


@dataclass(slots=True)
class KnownIds:
    """The ids of a recording's episodes and steps."""

    runs: dict[str, str] = field(default_factory=dict)
    """Run id by trace id."""
    roots: dict[str, str] = field(default_factory=dict)
    """Root span id by trace id, for ended episodes."""
    steps: dict[str, dict[tuple[str, int], str]] = field(default_factory=dict)
    """
    Span id of each step by trace id, then by containing span and index; empty for a packed step.

    Only episodes with annotated steps are included.
    """
    _sorted: list[str] = field(default_factory=list)

    def resolve(self, annotation: Annotation) -> Annotation:
        """The annotation with the full ids of its target; raises ValueError if there is no such target."""
        trace_id = self._full_id(annotation.episode)
        resolved = replace(annotation, episode=trace_id, run_id=self.runs[trace_id])
        if not annotation.on_step:
            return resolved
        steps = self.steps.get(trace_id, {})
        named = annotation.step_span_id
        targets = [
            (index, span_id)
            for (_, index), span_id in steps.items()
            if (named and named == span_id) or annotation.step == index
        ]
        if len(targets) == 1:
            return replace(resolved, step=targets[0][0], step_span_id=targets[0][1])
        which = annotation.step_span_id or annotation.step
        if targets:
            raise ValueError(f"episode {trace_id} has {len(targets)} steps {which}; give the span id of one")
        raise ValueError(f"episode {trace_id} has no step {which}; it has {len(steps)} steps")

    def _full_id(self, prefix: str) -> str:
        """The one trace id with that prefix."""
        self._sorted = self._sorted or sorted(self.runs)
        at = bisect_left(self._sorted, prefix)
        matches = [trace_id for trace_id in self._sorted[at : at + 2] if trace_id.startswith(prefix)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise ValueError(
                f"no episode's trace id begins with {prefix!r}; there are {len(self.runs)} episodes"
            )
        raise ValueError(f"several episodes' trace ids begin with {prefix!r}; give more digits")


def known(scan: Scan, annotations: Sequence[Annotation]) -> KnownIds:
    """The ids of a recording that the annotations may refer to, found in one pass."""
    ids = KnownIds()
    stepped = tuple({annotation.episode for annotation in annotations if annotation.on_step})
    for record in scan:
        kind = summary_fields.kind(record)
        if not kind or a.EPISODE_ID not in record.attributes:
            continue
        ids.runs.setdefault(record.trace_id, str(record.attributes[a.RUN_ID]))
        if kind == names.EPISODE:
            ids.roots[record.trace_id] = record.span_id
        elif kind == names.STEP and record.trace_id.startswith(stepped):
            index = int(record.attributes.get(a.STEP_INDEX, 0))
            ids.steps.setdefault(record.trace_id, {})[record.span_id, index] = record.span_id
        elif kind == names.STEPS and record.trace_id.startswith(stepped):
            packed = ((record.span_id, index) for index in summary_fields.indices(record))
            ids.steps.setdefault(record.trace_id, {}).update(dict.fromkeys(packed, ""))
    return ids
