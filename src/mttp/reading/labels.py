"""
Labels in a table, CSV or JSON lines: what each row states of which episode or step.

A row has `trace_id` (the beginning is enough), maybe `step` (its index or span id), and what it states:
either `key` and `value`, or a column per key. An empty cell states nothing.
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
from mttp.codec.episodes import OUTCOMES
from mttp.errors import ReadError
from mttp.model.episodes import Annotation, Reward
from mttp.model.keys import name_key
from mttp.otlp import regular_files
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["ABOUT", "MAX_BYTES", "KnownIds", "LabelRow", "known", "rows", "stated"]

MAX_BYTES: Final = 256 << 20
"""Largest table of labels."""

ABOUT = ("trace_id", "step", "by", "grader", "grader_kind", "grader_version", "explanation")
"""Columns that say what a row is about and who states it; every other one is a key."""

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_HEX = re.compile(r"[0-9a-f]{1,32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One row of a table of labels."""

    place: str
    """Where it stands, e.g. `labels.csv:3`."""
    cells: Mapping[str, Any]
    """Its cells by column, without the empty ones."""
    fault: str = ""
    """What is wrong with it, where it can't be understood at all."""


def rows(path: Path) -> list[LabelRow]:
    """The rows of a table; raises ReadError where it can't be read or its columns make no sense."""
    read = _json_rows if path.suffix in _JSON_SUFFIXES else _csv_rows
    try:
        text = regular_files.read(path, MAX_BYTES).decode("utf-8-sig")
        return list(read(path, StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReadError(f"{path} can't be read as text: {error}; save it as UTF-8") from error


def _csv_rows(path: Path, file: Iterable[str]) -> Iterator[LabelRow]:
    reader = csv.reader(file, strict=True)
    header = [name.strip() for name in next(reader, [])]
    _check_columns(f"{path}:1", header)
    if header.count("trace_id") != 1:
        raise ReadError(f"{path}:1: there is no column trace_id; name the episode of each row in one")
    for cells in reader:
        place = f"{path}:{reader.line_num}"
        if len(cells) > len(header):
            yield LabelRow(place, {}, f"it has {len(cells)} cells, and there are {len(header)} columns")
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
        except ValueError as error:
            yield LabelRow(place, {}, f"it is not JSON: {error}")
            continue
        if not isinstance(cells, dict):
            yield LabelRow(place, {}, "it is no JSON object; write one object per line")
            continue
        _check_columns(place, [*cells])
        yield LabelRow(place, {name: cell for name, cell in cells.items() if cell is not None and cell != ""})


def _check_columns(place: str, columns: Sequence[str]) -> None:
    """Refuse columns whose meaning is not clear."""
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
    What a row states, about the episode whose trace id begins as the row says.

    Raises ValueError, with what is wrong, where it makes no sense.
    """
    if row.fault:
        raise ValueError(row.fault)
    cells = row.cells
    whose = {name: _text(cells.get(name)) for name in ("grader", "grader_kind", "grader_version")}
    by = _text(cells.get("by")) or by
    said = {name: cell for name, cell in cells.items() if name not in ABOUT}
    if "key" in said or "value" in said:
        if len(said) < 2:
            raise ValueError("it has a key without a value, or the other way round")
        said = {str(said["key"]): said["value"]}
    about = Annotation(
        episode=_trace_id(cells.get("trace_id")),
        by=by or whose["grader"],
        explanation=_text(cells.get("explanation")),
        **_step(cells.get("step")),
    )
    return [_statement(about, key, value, whose) for key, value in said.items()]


def _statement(about: Annotation, key: str, value: Any, whose: Mapping[str, str | None]) -> Annotation:
    kind = codec.kind(key)
    name = name_key(key) if kind == "fact" else key
    if kind == codec.PREFERENCE or not name:
        raise ValueError(f"{key!r} is no name of a fact")
    found = _value(kind, value)
    if kind != "score":
        return replace(about, kind=kind, key=name, value=found)
    scoring = Reward(
        value=found,
        grader=whose["grader"] or about.by,
        grader_kind=whose["grader_kind"],
        grader_version=whose["grader_version"],
        explanation=about.explanation,
    )
    return replace(about, kind=kind, key=name, value=found, reward=scoring)


def _value(kind: str, value: Any) -> Any:
    """A cell as the value that statements of this kind have."""
    if kind in ("score", "advantage"):
        found = _scalar(value)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
            raise ValueError(f"{kind} is {value!r}, expected a number")
        return float(found)
    if kind == "outcome" and value not in OUTCOMES:
        raise ValueError(f"outcome is {value!r}, expected one of {', '.join(OUTCOMES)}")
    if kind in ("label", "comment", "outcome"):
        return _text(value)
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """A cell's text as a number or truth value where it is written as one."""
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


def _trace_id(given: Any) -> str:
    found = str(given or "").strip().lower()
    if not _HEX.fullmatch(found):
        raise ValueError(
            f"trace_id is {given!r}, expected up to 32 hexadecimal digits" if given else "it has no trace_id"
        )
    return found


def _step(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    written = str(given).strip().lower()
    if _SPAN_ID.fullmatch(written):
        return {"step_span_id": written}
    if not written.isdecimal():
        raise ValueError(f"step is {given!r}, expected an index from 0 or a span id of 16 hexadecimal digits")
    return {"step": int(written)}


@dataclass(slots=True)
class KnownIds:
    """The episodes and steps of a recording, by their ids."""

    runs: dict[str, str] = field(default_factory=dict)
    """Run by trace id."""
    roots: dict[str, str] = field(default_factory=dict)
    """Root span by trace id, where the episode has ended."""
    steps: dict[str, dict[tuple[str, int], str]] = field(default_factory=dict)
    """
    Each step's span by trace id, then by the span that it was found in and its index; empty for a packed one.

    Of the episodes whose steps were asked for.
    """
    _sorted: list[str] = field(default_factory=list)

    def resolve(self, annotation: Annotation) -> Annotation:
        """The annotation with the whole ids of its target; raises ValueError where there is none."""
        trace_id = self._whole(annotation.episode)
        found = replace(annotation, episode=trace_id, run_id=self.runs[trace_id])
        if not annotation.on_step:
            return found
        steps = self.steps.get(trace_id, {})
        named = annotation.step_span_id
        meant = [
            (index, span_id)
            for (_, index), span_id in steps.items()
            if (named and named == span_id) or annotation.step == index
        ]
        if len(meant) == 1:
            return replace(found, step=meant[0][0], step_span_id=meant[0][1])
        which = annotation.step_span_id or annotation.step
        if meant:
            raise ValueError(f"episode {trace_id} has {len(meant)} steps {which}; give the span id of one")
        raise ValueError(f"episode {trace_id} has no step {which}; it has {len(steps)} steps")

    def _whole(self, prefix: str) -> str:
        """The trace id that begins so."""
        self._sorted = self._sorted or sorted(self.runs)
        at = bisect_left(self._sorted, prefix)
        found = [trace_id for trace_id in self._sorted[at : at + 2] if trace_id.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise ValueError(
                f"no episode's trace id begins with {prefix!r}; there are {len(self.runs)} episodes"
            )
        raise ValueError(f"several episodes' trace ids begin with {prefix!r}; give more digits")


def known(scan: Scan, annotations: Sequence[Annotation]) -> KnownIds:
    """What a recording holds that the annotations may be about, found in one pass."""
    found = KnownIds()
    stepped = tuple({annotation.episode for annotation in annotations if annotation.on_step})
    for record in scan:
        kind = summary_fields.kind(record)
        if not kind or a.EPISODE_ID not in record.attributes:
            continue
        found.runs.setdefault(record.trace_id, str(record.attributes[a.RUN_ID]))
        if kind == names.EPISODE:
            found.roots[record.trace_id] = record.span_id
        elif kind == names.STEP and record.trace_id.startswith(stepped):
            index = int(record.attributes.get(a.STEP_INDEX, 0))
            found.steps.setdefault(record.trace_id, {})[record.span_id, index] = record.span_id
        elif kind == names.STEPS and record.trace_id.startswith(stepped):
            packed = ((record.span_id, index) for index in summary_fields.indices(record))
            found.steps.setdefault(record.trace_id, {}).update(dict.fromkeys(packed, ""))
    return found
