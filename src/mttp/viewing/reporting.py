"""`mttp.report`: a recording as one HTML file that opens offline."""

from __future__ import annotations

import base64
import gzip
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from mttp.errors import ConfigureError, ReadError, StudyError
from mttp.model.episodes import Episode
from mttp.model.figures import EpisodeFigures
from mttp.model.version import __version__
from mttp.reading import Recording, read
from mttp.reading.recording import read_without
from mttp.reading.sources import Source
from mttp.study import Comparison, Diagnosis, compare, diagnose, gate
from mttp.tables import summarize
from mttp.tables.figures import figures_of_values, read_figures
from mttp.viewing.episode_page import episode_page
from mttp.viewing.episode_table import EpisodeTable
from mttp.viewing.html import report_html
from mttp.viewing.overview import Contents, sections
from mttp.viewing.rows import cells, columns, views
from mttp.viewing.selection import select
from mttp.viewing.token_view import Pieces

if TYPE_CHECKING:
    from mttp.study.rules import RulesSource

__all__ = ["Report", "report"]

LIMIT = 5_000
"""The default number of episodes in a report."""
_MOST_BYTES = 24_000_000
"""Largest size of all episodes together, compressed and as base64."""
_CHUNK = 400_000
"""Episodes are compressed together up to this number of characters of JSON."""
_MOST_DIAGNOSED = 20_000
"""Diagnosing reads all episodes at once: recordings with more are not diagnosed."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """A recording as one HTML file."""

    html: str
    """The file."""
    episodes: int
    """Number of episodes of the recording."""
    rows: int
    """Number of episodes in the report's table."""
    pages: int
    """Number of these that can be opened."""
    headlines: tuple[str, ...] = ()
    """Verdicts of comparison and gate, and what the diagnosis found, a line each."""
    refusal: str | None = None
    """Why the recording was not compared with the baseline."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the file's content."""
        found = asdict(self)
        del found["html"]
        return found

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the file and return its path; an existing file is replaced."""
        target = Path(path)
        target.write_text(self.html, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"<Report of {self.episodes:,} episodes, {self.rows:,} in its table, {self.pages:,} to open>"


def report(
    source: Source | Recording,
    *,
    baseline: Source | Recording | None = None,
    rules: RulesSource | None = None,
    limit: int = LIMIT,
    allow: Iterable[str] = (),
    pieces: Pieces | None = None,
    progress: Callable[[int], object] | None = None,
) -> Report:
    """
    A recording as one HTML file: runs, curves, graders, findings, groups, and its episodes in full.

    `source` is what `mttp.read` takes, or a Recording; `baseline` is another one to compare with.
    `rules` are promotion rules as `mttp.gate` takes them, and `allow` names differences to the baseline that
    are accepted.
    `limit` is the largest number of episodes in the report. If there are more, it has those with the lowest
    and the highest rewards, errors, examples of findings and some others, and says so.
    `pieces` returns the texts of token ids.

    Raises ReadError where a source can't be read, and StudyError for rules that are not valid.
    A comparison or diagnosis that is refused is a sentence in the report.
    """
    if limit < 1:
        raise ConfigureError(f"limit={limit}: give a number of episodes from 1 on")
    figures = _figures(source, progress)
    if len(figures) <= limit and not isinstance(source, Recording):
        source = read(source, progress=progress)
    base = None if baseline is None else EpisodeTable.of_counted(baseline)
    found = _diagnosed(source, len(figures))
    compared = None if baseline is None else _compared(baseline, source, allow)
    gated = None if rules is None else gate(source, rules=rules, baseline=baseline)
    named = _named(found, compared)
    shown, sampling = select(figures, limit, named)
    recording = _chosen(source, figures, shown, progress)
    values = {one.trace_id: one for one in recording.episodes}
    rows = _with_extras(EpisodeTable.of(shown), [values.get(one.trace_id) for one in shown])
    summary = source.summary() if isinstance(source, Recording) else summarize(source)
    missing = (one for one in summary.problems if one.kind == "missing_episodes")
    contents = Contents(
        episodes=EpisodeTable.of(figures),
        runs=recording.runs,
        graders=summary.graders,
        faults=summary.faults,
        verdicts=summary.verdicts,
        groups=recording.groups,
        updates=recording.updates,
        problems=[*dict.fromkeys([*missing, *recording.problems])],
        baseline=base,
        comparison=compared,
        diagnosis=found,
        gate=gated,
    )
    chosen = columns(rows)
    chunks, chunk_of = _chunks(_pages(recording, pieces, _order(shown, named)))
    overview = {
        "title": _title(recording),
        "sources": [*map(str, recording.sources), *recording.stores],
        "version": __version__,
        "made": int(time.time() * 1000),
        "sampling": _sampling(sampling, len(shown), len(chunk_of)),
        "sections": sections(contents),
        "columns": [one.to_dict() for one in chosen],
        "views": views(rows, chosen),
    }
    data = {"overview": overview, "rows": cells(rows, chosen), "chunks": chunks, "chunk_of": chunk_of}
    return Report(
        html=report_html(_title(recording), _json(data)),
        episodes=len(figures),
        rows=len(rows),
        pages=len(chunk_of),
        headlines=tuple(_headlines(contents)),
        refusal=compared if isinstance(compared, str) else None,
    )


# Reading.


def _figures(source: Source | Recording, progress: Callable[[int], object] | None) -> list[EpisodeFigures]:
    found = (
        figures_of_values(source)
        if isinstance(source, Recording)
        else read_figures(source, progress=progress)
    )
    return sorted(found, key=lambda one: (one.start_time, one.trace_id))


def _chosen(
    source: Source | Recording,
    figures: Sequence[EpisodeFigures],
    shown: Sequence[EpisodeFigures],
    progress: Callable[[int], object] | None,
) -> Recording:
    """The recording with the shown episodes, and all groups, updates and runs."""
    kept = {one.trace_id for one in shown}
    left_out = {one.trace_id for one in figures} - kept
    if isinstance(source, Recording):
        return replace(source, episodes=[one for one in source.episodes if one.trace_id in kept])
    return read_without(source, left_out, progress=progress)


def _diagnosed(source: Source | Recording, count: int) -> Diagnosis | str:
    if count > _MOST_DIAGNOSED:
        return f"the recording has {count:,} episodes; run `mttp diagnose` on it"
    try:
        return diagnose(source)
    except (ReadError, StudyError) as error:
        return str(error)


def _compared(
    baseline: Source | Recording, source: Source | Recording, allow: Iterable[str]
) -> Comparison | str:
    try:
        return compare(baseline, source, allow=allow)
    except (ReadError, StudyError) as error:  # both sides were read before: one has no episodes
        return str(error)


def _named(found: Diagnosis | str, compared: Comparison | str | None) -> list[str]:
    """Trace ids of the examples of findings and of the tasks that changed sides."""
    named = (
        [] if isinstance(found, str) else [trace_id for one in found.findings for trace_id in one.episodes]
    )
    flips = () if compared is None or isinstance(compared, str) else compared.flips
    return [*named, *(flip.candidate_episode for flip in flips)]


def _with_extras(rows: EpisodeTable, episodes: Sequence[Episode | None]) -> EpisodeTable:
    """The table with the numbers that figures do not hold."""
    return rows.with_numbers(
        advantage=[None if one is None else one.advantage for one in episodes],
        surprise=[None if one is None else _surprise(one) for one in episodes],
    )


def _surprise(episode: Episode) -> float | None:
    """The mean negative log probability of the sampled tokens, in nats; None without any."""
    found = [step.tokens.logprobs for step in episode.steps if step.tokens is not None]
    together = np.concatenate([*(one[np.isfinite(one)] for one in found if one is not None), np.empty(0)])
    return float(-together.mean()) if len(together) else None


def _headlines(contents: Contents) -> Iterator[str]:
    if contents.gate is not None:
        yield f"gate: {contents.gate.verdict}"
    if contents.comparison is not None and not isinstance(contents.comparison, str):
        yield f"against the baseline: {contents.comparison.verdict} by {contents.comparison.metrics[0]!r}"
    if isinstance(contents.diagnosis, str):
        yield f"not diagnosed: {contents.diagnosis}"
    elif contents.diagnosis is not None:
        for one in contents.diagnosis.findings:
            yield f"{one.severity} {one.kind}: {one.evidence}"


# Pages.


def _order(shown: Sequence[EpisodeFigures], named: Sequence[str]) -> list[str]:
    """Trace ids, the more important ones first: those that are kept if the report becomes too large."""
    important, _ = select(shown, max(1, len(shown) // 2), named)
    first = [one.trace_id for one in important]
    return [*dict.fromkeys([*named, *first, *(one.trace_id for one in shown)])]


def _pages(recording: Recording, pieces: Pieces | None, order: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Trace id and page as JSON of each episode, in that order."""
    values = {one.trace_id: one for one in recording.episodes}
    groups = {member: group for group in recording.groups for member in group.episodes}
    problems: dict[str, list[str]] = {}
    for one in recording.problems:
        if one.trace_id is not None:
            problems.setdefault(one.trace_id, []).append(str(one))
    source = str(recording.sources[0]) if len(recording.sources) == 1 else ""
    for trace_id in order:
        if trace_id in values:
            page = episode_page(
                values[trace_id],
                group=groups.get(trace_id),
                problems=problems.get(trace_id, ()),
                pieces=pieces,
                source=source,
            )
            yield trace_id, _json(page)


def _json(value: Any) -> str:
    """Plain data as JSON, in a fifth of the time of `to_json`; NaN becomes null."""
    return msgspec.json.encode(value).decode()


def _chunks(pages: Iterable[tuple[str, str]]) -> tuple[list[str], dict[str, int]]:
    """Compressed chunks of pages as base64, and the chunk of each trace id, up to the largest size."""
    chunks: list[str] = []
    chunk_of: dict[str, int] = {}
    waiting: dict[str, str] = {}
    size = total = 0

    def close() -> None:
        nonlocal size, total
        body = ",".join(f"{_json(trace_id)}:{page}" for trace_id, page in waiting.items())
        packed = base64.b64encode(gzip.compress(f"{{{body}}}".encode(), 6, mtime=0)).decode()
        if total + len(packed) <= _MOST_BYTES:
            chunk_of.update(dict.fromkeys(waiting, len(chunks)))
            chunks.append(packed)
        total += len(packed)
        waiting.clear()
        size = 0

    for trace_id, page in pages:
        waiting[trace_id] = page
        size += len(page)
        if size >= _CHUNK:
            close()
            if total > _MOST_BYTES:
                break
    if waiting:
        close()
    return chunks, chunk_of


def _sampling(sentence: str, rows: int, pages: int) -> str:
    if pages >= rows:
        return sentence
    return f"{sentence} {pages:,} of them can be opened; the others would make the file too large.".strip()


def _title(recording: Recording) -> str:
    names = dict.fromkeys(run.name or run.id for run in recording.runs)
    return ", ".join([*names][:3]) + (" and others" if len(names) > 3 else "") or "Recording"
