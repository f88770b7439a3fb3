"""`mttp.report`: a recording as one HTML file that opens offline."""

from __future__ import annotations

import base64
import gzip
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mttp.errors import ConfigureError, ReadError, StudyError
from mttp.model.episodes import Run
from mttp.model.version import __version__
from mttp.pages.tokens import Pieces
from mttp.reading import Recording
from mttp.reading.problems import Problem
from mttp.reading.recording import read_without
from mttp.reading.sources import Source
from mttp.study import Comparison, compare, gate
from mttp.study.diagnosing.evidence import EVIDENCE
from mttp.tables import Database
from mttp.tables.summary import SUMMARY, health, summary_of
from mttp.viewing.diagnoses import MOST_EPISODES, Diagnoses, diagnoses, not_diagnosed
from mttp.viewing.episode_page import episode_page
from mttp.viewing.figures import UPDATES, figures
from mttp.viewing.html import report_html
from mttp.viewing.overview import Contents, marks, sections, with_problems
from mttp.viewing.picking import contents_of, of_all_runs
from mttp.viewing.rows import cells, columns, long_texts, views
from mttp.viewing.selection import ScoredEpisode, scored_episodes, select
from mttp.viewing.update_page import update_page

if TYPE_CHECKING:
    from mttp.study.rules import RulesSource

__all__ = ["Report", "report"]

LIMIT = 5_000
"""The default number of episodes in a report."""
_MOST_BYTES = 24_000_000
"""Largest size of all episodes together, compressed and as base64."""
_MOST_TEXTS = 4_000_000
"""Largest size of the texts that the search reads, compressed; else it has fewer, or the ends in the list."""
_MOST_RUNS = 24
"""Of more runs a report has no overview of each."""
_MOST_UPDATES = 1_000
"""Largest number of updates that can be opened."""
_CHUNK = 400_000
"""Episodes are compressed together up to this number of characters of JSON."""


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
    sections: Sequence[dict[str, Any]] = ()
    """The overview, as blocks of a page."""
    headlines: tuple[str, ...] = ()
    """Verdicts of comparison and gate, and what the diagnosis found, a line each."""
    refusal: str | None = None
    """Why the recording was not compared with the baseline."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the file's content."""
        data = asdict(self)
        del data["html"], data["sections"]
        return data

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
    with ExitStack() as stack:
        database = stack.enter_context(_tables(source, progress))
        base = None if baseline is None else stack.enter_context(_tables(baseline, progress))
        database.prepare(*SUMMARY, UPDATES, "FROM trained", *EVIDENCE, content=True)
        summary = summary_of(database)
        episodes = scored_episodes(database)
        is_diagnosed = len(episodes) <= MOST_EPISODES
        diagnosed = diagnoses(database, summary.runs) if is_diagnosed else not_diagnosed(len(episodes))
        comparison = None if base is None else _compared(base, database, allow)
        named = _named(diagnosed, comparison)
        trace_ids, sampling = select(episodes, limit, named)
        important, _ = select(episodes, max(1, len(trace_ids) // 2), named)
        contents = Contents(
            episodes=database,
            runs=summary.runs,
            graders=summary.graders,
            faults=summary.faults,
            verdicts=summary.verdicts,
            updates=database.rows(UPDATES),
            baseline=None if base is None else figures(base),
            comparison=comparison,
            diagnoses=diagnosed,
            gate=None if rules is None else gate(database, rules=rules, baseline=base),
        )
        blocks = sections(contents)
        shown = columns(database)
        names = {run.id: run.name or run.id for run in summary.runs}
        overview: dict[str, Any] = {
            "title": _title(summary.runs),
            "sources": [*map(str, database.sources), *database.stores],
            "version": __version__,
            "made": int(time.time() * 1000),
            "columns": [column.to_dict() for column in shown],
            "views": views(database, shown),
            "marks": marks(contents),
            "runs": [{"id": run_id, "name": name} for run_id, name in names.items()],
            "picked": [],
            "of_all": of_all_runs(contents),
        }
        updates = _updates(database, contents.updates, names)
        parts = [*_parts(contents)]
        rows = cells(database, shown, trace_ids)
        texts = _texts(long_texts(database, trace_ids))
    recording = _chosen(source, trace_ids, episodes, progress)
    problems = [*dict.fromkeys([*_missing(summary.problems), *recording.problems])]
    overview["sections"] = with_problems(blocks, problems, summary.faults)
    chunks, chunk_of = _chunks(_pages(recording, pieces, [*dict.fromkeys([*named, *important, *trace_ids])]))
    overview["sampling"] = _sampling(sampling, len(rows), len(chunk_of))
    data: dict[str, Any] = {"overview": overview, "rows": rows, "chunks": chunks, "chunk_of": chunk_of}
    data["texts"] = texts
    data["updates"] = updates
    run_of = {episode["trace_id"]: episode["run_id"] for episode in episodes}
    data["parts"] = [
        {"runs": part["picked"], "overview": _packed(_json(_with_problems_of(part, problems, run_of)))}
        for part in parts
    ]
    return Report(
        html=report_html(_title(summary.runs), _json(data)),
        episodes=len(episodes),
        rows=len(rows),
        pages=len(chunk_of),
        sections=overview["sections"],
        headlines=tuple(_headlines(contents)),
        refusal=comparison if isinstance(comparison, str) else None,
    )


# Reading.


def _tables(
    source: Source | Recording, progress: Callable[[int], object] | None
) -> AbstractContextManager[Database]:
    if isinstance(source, Recording):
        return nullcontext(source.tables)
    return Database(source, progress=progress)


def _chosen(
    source: Source | Recording,
    trace_ids: Sequence[str],
    episodes: Sequence[ScoredEpisode],
    progress: Callable[[int], object] | None,
) -> Recording:
    """Return the recording with these episodes, and all groups, updates and runs."""
    chosen = {*trace_ids}
    if isinstance(source, Recording):
        return replace(
            source, episodes=[episode for episode in source.episodes if episode.trace_id in chosen]
        )
    return read_without(source, {episode["trace_id"] for episode in episodes} - chosen, progress=progress)


def _missing(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.kind == "missing_episodes"]


def _compared(base: Database, candidate: Database, allow: Iterable[str]) -> Comparison | str:
    try:
        return compare(base, candidate, allow=allow)
    except (ReadError, StudyError) as error:  # both sides were read before: one has no episodes
        return str(error)


def _named(diagnosed: Diagnoses, compared: Comparison | str | None) -> list[str]:
    """Return the trace ids of the examples of findings and of the tasks that changed sides."""
    findings = [
        finding for each in diagnosed.values() if not isinstance(each, str) for finding in each.findings
    ]
    flips = () if compared is None or isinstance(compared, str) else compared.flips
    return [
        *(trace_id for finding in findings for trace_id in finding.episodes),
        *(flip.candidate_episode for flip in flips),
    ]


def _headlines(contents: Contents) -> Iterator[str]:
    if contents.gate is not None:
        yield f"gate: {contents.gate.verdict}"
    if contents.comparison is not None and not isinstance(contents.comparison, str):
        yield f"against the baseline: {contents.comparison.verdict} by {contents.comparison.metrics[0]!r}"
    names = {run.id: f"{run.name or run.id}: " for run in contents.runs} | {"": ""}
    for run_id, diagnosis in contents.diagnoses.items():
        if isinstance(diagnosis, str):
            yield f"{names[run_id]}not diagnosed: {diagnosis}"
        else:
            for finding in diagnosis.findings:
                yield f"{names[run_id]}{finding.severity} {finding.kind}: {finding.evidence}"


# The overviews of some runs.


def _parts(contents: Contents) -> Iterator[dict[str, Any]]:
    """Yield the overview of each of several runs, and of those that share a name."""
    by_name: dict[str, list[str]] = {}
    run_ids = [*dict.fromkeys(run.id for run in contents.runs)]
    for run in contents.runs:
        by_name.setdefault(run.name or run.id, []).append(run.id)
    choices: list[tuple[str, ...]] = [(run_id,) for run_id in run_ids]
    choices += [tuple(dict.fromkeys(of_name)) for of_name in by_name.values()]
    if len(run_ids) > _MOST_RUNS:
        return
    for choice in dict.fromkeys(choices):
        if len(choice) < len(run_ids):
            picked = contents_of(contents, choice, health(contents.episodes, contents.runs, choice))
            listed = columns(picked.episodes)
            yield {
                "picked": choice,
                "sections": sections(contents, picked),
                "views": views(picked.episodes, listed),
                "marks": marks(picked),
                "faults": picked.faults,
            }


def _with_problems_of(
    part: Mapping[str, Any], problems: Iterable[Problem], run_of: Mapping[str, str]
) -> dict[str, Any]:
    """Return the overview of some runs with their problems, and those of no run."""
    runs = part["picked"]
    of_runs = [
        problem
        for problem in problems
        if run_of.get(problem.trace_id or "", runs[0]) in runs
        and (problem.kind != "missing_episodes" or any(run_id in problem.message for run_id in runs))
    ]
    return {**part, "sections": with_problems(part["sections"], of_runs, part["faults"])}


def _texts(texts: Sequence[Sequence[str]]) -> str:
    """Return the texts of each row, compressed: prompts and completions, or none, where all are too large."""
    packed = (_packed(_json([row[:number] for row in texts])) for number in (3, 2))
    return next((text for text in packed if len(text) <= _MOST_TEXTS), "")


def _updates(database: Database, updates: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Return the pages of the last updates by run and index, compressed; empty if they are too large."""
    keys = dict.fromkeys((row["run_id"], row["index"]) for row in updates[-_MOST_UPDATES:])
    pages = {
        f"{run_id} {index}": update_page(database, updates, names, run_id, index) for run_id, index in keys
    }
    packed = _packed(_json(pages))
    return packed if len(packed) <= _MOST_TEXTS else ""


# Pages.


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
        packed = _packed(f"{{{body}}}")
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


def _packed(document: str) -> str:
    """Return a document as base64 of gzip."""
    return base64.b64encode(gzip.compress(document.encode(), 4, mtime=0)).decode()


def _sampling(sentence: str, rows: int, pages: int) -> str:
    if pages >= rows:
        return sentence
    return f"{sentence} {pages:,} of them can be opened; the others would make the file too large.".strip()


def _title(runs: Iterable[Run]) -> str:
    names = dict.fromkeys(run.name or run.id for run in runs)
    return ", ".join([*names][:3]) + (" and others" if len(names) > 3 else "") or "Recording"
