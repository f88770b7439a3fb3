"""Sizes of recordings as tables for people and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering.words import duration, number

if TYPE_CHECKING:
    from mttp.study.sizing import CollectorNeeds, Sizing, Workload

__all__ = ["byte_text", "document", "render"]

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB", "EB")
_FORMS = {"file": "JSON lines", "gzip": "gzip", "zstd": "zstd", "parquet": "Parquet, converted"}
_YEAR = 365.25 * 86_400


def byte_text(count: float) -> str:
    """Return a number of bytes with three significant digits, in the largest unit of which there is one."""
    place = 0
    while abs(float(f"{count:.3g}")) >= 1000 and place < len(_UNITS) - 1:
        count, place = count / 1000, place + 1
    digits = f"{count:,.0f}" if abs(count) >= 1000 else f"{count:.3g}"
    return f"{digits} {_UNITS[place]}"


def document(found: Sizing) -> dict[str, Any]:
    """Return the JSON document: all fields, in bytes and seconds."""
    return asdict(found)


def render(found: Sizing) -> RenderableType:
    """Return the text for a terminal."""
    parts: list[RenderableType] = [Text(_headline(found.workload)), Text()]
    parts.append(_table(_rates(found), "", "all workers", "each"))
    if found.kept:
        parts += [Text(), Text(_kept_headline(found)), _table(_kept(found), "", "a second", "kept")]
    parts += [Text(), Text("memory of each worker, measured"), _table(_memory(found))]
    if found.collector is not None:
        parts += [Text(), Text("Collector, from public figures"), _table(_collector(found.collector))]
        parts += [Text(f"source: {source}") for source in found.collector.sources]
    parts += [Text(), *(Text(f"note: {note}") for note in found.notes)] if found.notes else []
    return Group(*parts)


def _headline(workload: Workload) -> str:
    """Return what is recorded, in words."""
    what = [f"episodes of {_some(workload.steps, 'step')}", f"{_some(workload.rate, 'step')} a second each"]
    if workload.tokens:
        arrays = {"ids": workload.token_ids, "log probabilities": workload.logprobs}
        written = " and ".join(name for name, is_written in arrays.items() if is_written)
        what.append(f"{_some(workload.tokens, 'token')} a step: {written or 'counts only'}")
    if workload.content and workload.characters:
        what.append(f"{_some(workload.characters, 'character')} a step")
    if workload.calls:
        what.append(f"{_some(workload.calls, 'call')} a step")
    return f"{_some(workload.workers, 'worker')}: {', '.join(what)}"


def _some(count: float, noun: str) -> str:
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def _rates(found: Sizing) -> Iterator[tuple[str, ...]]:
    workers = found.workload.workers
    is_collector = found.collector is not None
    for name, value in {
        "steps": found.steps_per_second,
        "episodes": found.episodes_per_second,
        "spans": found.spans_per_second,
        "requests" if is_collector else "writes": found.writes_per_second,
    }.items():
        yield name, f"{number(_rounded(value))} /s", f"{number(_rounded(value / workers))} /s"
    wire = "bodies of requests" if is_collector else f"bytes to {_FORMS[found.to]}"
    yield wire, f"{byte_text(found.bytes_per_second)}/s", f"{byte_text(found.bytes_per_second / workers)}/s"
    if found.gzip_bytes_per_second is not None:
        packed = found.gzip_bytes_per_second
        yield "with compression=gzip", f"{byte_text(packed)}/s", f"{byte_text(packed / workers)}/s"


def _kept_headline(found: Sizing) -> str:
    kept = f"; those of {_long(found.kept_seconds)} are kept" if found.kept_seconds < found.seconds else ""
    return f"{number(_rounded(found.episodes))} episodes, recorded in {_long(found.seconds)}{kept}"


def _kept(found: Sizing) -> Iterator[tuple[str, ...]]:
    for form, kept in found.kept.items():
        yield _FORMS[form], f"{byte_text(kept.bytes_per_second)}/s", byte_text(kept.bytes_kept)


def _memory(found: Sizing) -> Iterator[tuple[str, ...]]:
    memory = found.memory
    yield "in the process", byte_text(memory.process_bytes)
    yield "encoding process", byte_text(memory.helper_bytes)
    yield "queue", byte_text(memory.queue_bytes)
    most = f"{byte_text(memory.most_queue_bytes)}, full after {_long(memory.full_after_seconds)}"
    yield "queue at most", f"{most} without writing"


def _collector(needs: CollectorNeeds) -> Iterator[tuple[str, ...]]:
    yield "processors", number(_rounded(needs.processors))
    yield "memory without queues", byte_text(needs.memory_bytes)
    yield "queue for an hour", byte_text(needs.queue_bytes_per_hour)
    yield "queue of agent.yaml", f"4.29 GB, full after {_long(needs.agent_queue_seconds)}"
    if needs.tempo_distributors is not None:
        yield "Tempo's distributors", f"{needs.tempo_distributors:,} with 2 processors and 2 GB"
        yield "Tempo's ingesters", f"{needs.tempo_ingesters:,} with 2.5 processors and 4 to 20 GB"


def _table(rows: Iterator[tuple[str, ...]], *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=bool(headings))
    for place, row in enumerate(rows):
        if not place:
            for column in range(len(row)):
                heading = headings[column] if headings else ""
                table.add_column(heading, justify="right" if column and headings else "left")
        table.add_row(*map(Text, row))
    return table


def _long(seconds: float) -> str:
    """Return a duration; from two years on, in years."""
    return f"{number(_rounded(seconds / _YEAR))} years" if seconds >= 2 * _YEAR else duration(seconds)


def _rounded(value: float) -> float:
    """Return a number with three significant digits; from 1,000 on, all digits before the point."""
    return float(round(value)) if abs(value) >= 1000 else float(f"{value:.3g}")
