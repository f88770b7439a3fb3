"""An index of the episodes of growing recordings, in DuckDB on disk."""

from __future__ import annotations

import math
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mttp.codec import runs as run_codec
from mttp.codec import summary_fields
from mttp.codec.kinds import is_run
from mttp.errors import MissingExtra, ReadError
from mttp.model.counting import COMPLETED
from mttp.model.episodes import Group, Run, Update
from mttp.model.spans import SpanRecord
from mttp.otlp.recording_files import is_parquet
from mttp.otlp.streams import FilePart
from mttp.reading import lines, parquet
from mttp.reading.completeness import CountedSpans, missing_episodes
from mttp.reading.following import Arrived, Follower
from mttp.reading.problems import Problem
from mttp.reading.recording import Recording, read
from mttp.reading.scanning import Scan
from mttp.reading.sources import size
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.tables.growing import GrowingEpisodes
from mttp.tables.summary import HEALTH, Health, health
from mttp.viewing.episode_table import EpisodeTable, columns_of

__all__ = ["EpisodeIndex"]

_STORE_SECONDS = 1.0
"""Time after which episodes of a large file are shown before it is read to its end."""
_COUNTS = f"status = '{COMPLETED}' AND reward_status IN ('ok', 'missing')"
"""Whether the reward or the return of an episode counts, see `mttp.model.counting`."""
_LATE = frozenset({names.GROUP, names.UPDATE, names.ANNOTATE})


class EpisodeIndex:
    """
    The episodes of files that may grow: rows in DuckDB, and where the spans of each episode are.

    One thread calls `refresh`; others may query at the same time. `close` removes the database.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = [*sources]
        self._directory = tempfile.TemporaryDirectory(prefix="mttp-view-")
        self._connection = _connect(Path(self._directory.name) / "episodes.duckdb")
        self._lock = threading.Lock()
        self._snapshots: set[Any] = set()
        """Cursors that `interrupt` interrupts."""
        self._is_stopping = False
        self._growing = GrowingEpisodes(*HEALTH)
        self._growing_lock = threading.Lock()
        self._counted = CountedSpans()
        self._runs: dict[str, dict[str, SpanRecord]] = {}
        """Spans of runs by trace and span id."""
        self._follower = Follower(self.sources)
        self._files: dict[Path, int] = {}
        self._late = _LateTraces()
        self._is_created = False
        self._stored = 0
        self._noted: list[str] = []
        self.is_read = False
        """Whether all that was there at first is read."""
        self.version = 0
        """Raised with each change of what can be seen."""

    def refresh(self) -> bool:
        """
        Read what was written since the last call; return whether anything was.

        Raises ReadError where there is nothing to follow, or nothing but other files.
        """
        is_changed = False
        stored = time.monotonic()
        for arrived in self._follower.poll():
            if self._is_stopping:
                return is_changed
            self._add(arrived)
            is_changed = is_changed or bool(arrived.spans)
            if time.monotonic() - stored > _STORE_SECONDS:
                self._store()
                self.version += 1
                stored = time.monotonic()
        self._store()
        self.version += is_changed
        self.is_read = True
        if not is_changed and not self._is_created and (refused := self._refused()):
            raise ReadError(refused)
        return is_changed

    def stop(self) -> None:
        """End a call of `refresh` that reads on another thread, after the part that it is at."""
        self._is_stopping = True

    def close(self) -> None:
        """Remove the database."""
        import duckdb

        with self._lock, suppress(duckdb.Error):  # a statement that can't be interrupted keeps it open
            self._connection.close()
        self._growing.close()
        self._directory.cleanup()

    # Queries.

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement on the table `episodes`; none as long as there is no episode."""
        if not self._is_created:
            return []
        with self._cursor() as cursor:
            return list(cursor.execute(statement, parameters).fetchall())

    def snapshot(self, *queries: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
        """
        The rows of several statements on one state of the table.

        Raises the database's InterruptException after a call of `interrupt`.
        """
        if not self._is_created:
            return [[] for _ in queries]
        with self._cursor() as cursor:
            with self._lock:
                self._snapshots.add(cursor)
            try:
                cursor.execute("BEGIN")
                return [cursor.execute(*query).fetchall() for query in queries]
            finally:
                with self._lock:
                    self._snapshots.remove(cursor)
                cursor.execute("ROLLBACK")

    def interrupt(self) -> None:
        """Interrupt the statements that snapshots are at; one that begins later must be interrupted again."""
        with self._lock:
            for cursor in self._snapshots:
                cursor.interrupt()

    def __len__(self) -> int:
        return self._stored

    @property
    def share(self) -> float:
        """The share of the files' bytes that is read."""
        total = size(self.sources)
        return min(1.0, self._follower.bytes_read / total) if total else 1.0

    def table(self) -> EpisodeTable:
        """The columns of all episodes, in order of start."""
        if not self._is_created:
            return EpisodeTable.of([])
        with self._cursor() as cursor:
            found = cursor.sql("SELECT * FROM episodes ORDER BY start, episode")
            return EpisodeTable(found.to_arrow_table())

    def episode(self, trace_id: str) -> Recording:
        """A recording of one episode with its later facts; raises ReadError if there is none."""
        places = self.query("SELECT DISTINCT file, first, last FROM places WHERE trace = ?", [trace_id])
        if not places:
            raise ReadError(f"there is no episode {trace_id}")
        files = {number: path for path, number in self._files.items()}
        wanted = {trace_id, *self._late.of(trace_id)}
        records: list[SpanRecord] = []
        for number, first, last in places:
            part = None if first is None else FilePart(first, last)
            records += _spans_of(files[number], part, wanted)
        return read(_Held(records))

    def runs(self) -> list[Run]:
        """The runs in order of start."""
        found = []
        for spans in [*self._runs.values()]:
            try:
                found.append(run_codec.decode(list(spans.values())))
            except Exception:  # a broken run must not hide the others
                continue
        return sorted(found, key=lambda run: (run.start_time or 0, run.id))

    def groups(self, limit: int) -> list[Group]:
        """The last groups in order of start, with the rewards of their episodes, without advantages."""
        found = self.query(
            'SELECT "group", any_value(task), list(episode ORDER BY start), '
            f"list(CASE WHEN {_COUNTS} THEN coalesce(reward, \"return\", 'nan') ELSE 'nan' END "
            "ORDER BY start), "
            "min(start) AS first "
            'FROM episodes WHERE "group" IS NOT NULL GROUP BY "group" ORDER BY first DESC LIMIT ?',
            [limit],
        )
        return [_group(*row) for row in reversed(found)]

    @property
    def updates(self) -> list[Update]:
        """The updates in order of start, without the lists of their episodes."""
        return self._late.updates

    @property
    def problems(self) -> list[Problem]:
        """Problems of what was read so far."""
        noted = [Problem(kind="damaged_file", message=message) for message in self._noted]
        missing = missing_episodes(self.runs(), self._counted.by_run) if self.is_read else ()
        lacking = [Problem(kind="missing_episodes", message=message) for message in missing]
        return [*lacking, *self._follower.problems, *noted]

    def note(self, message: str) -> None:
        """Add an error of following to the problems, once."""
        if message not in self._noted:
            self._noted.append(message)
            self.version += 1

    def check(self) -> None:
        """Raise ReadError if a source does not exist, or can't be followed."""
        self._follower.files()

    def is_pattern(self, text: str) -> bool:
        """Whether a text is a regular expression of the database."""
        import duckdb

        try:
            with self._cursor() as cursor:
                cursor.execute("SELECT regexp_matches('', ?)", [text])
        except duckdb.Error:
            return False
        return True

    def health(self) -> Health:
        """Return the health of graders, the faults and the verdicts."""
        with self._growing_lock:
            self._growing.prepare(*HEALTH)
            return health(self._growing, self.runs())

    # Storing.

    def _add(self, arrived: Arrived) -> None:
        number = self._files.setdefault(arrived.path, len(self._files))
        places: dict[str, None] = {}
        with self._growing_lock:
            self._growing.add(arrived.spans)
        for one in arrived.spans:
            self._counted.add(one)
            if is_run(one):
                self._runs.setdefault(one.trace_id, {}).setdefault(one.span_id, one)
            for trace_id in self._late.about(one):
                places[trace_id] = None
        if places:
            self._store_places(places, number, arrived.part)

    def _store_places(self, traces: Iterable[str], number: int, part: FilePart | None) -> None:
        import pyarrow as pa

        listed = [*traces]
        first, last = (None, None) if part is None else part
        table = pa.table(
            {
                "trace": pa.array(listed, pa.string()),
                "file": pa.array([number] * len(listed), pa.int32()),
                "first": pa.array([first] * len(listed), pa.int64()),
                "last": pa.array([last] * len(listed), pa.int64()),
            }
        )
        with self._cursor() as cursor:
            cursor.register("arrived", table)
            cursor.execute("CREATE TABLE IF NOT EXISTS places AS SELECT * FROM arrived LIMIT 0")
            cursor.execute("INSERT INTO places SELECT * FROM arrived")
            cursor.unregister("arrived")

    def _store(self) -> None:
        """Write the rows that changed."""
        with self._growing_lock:
            figures = self._growing.changed()
        if not figures:
            return
        with self._cursor() as cursor:
            cursor.register("arrived", columns_of(figures))
            cursor.execute("BEGIN")
            cursor.execute("CREATE TABLE IF NOT EXISTS episodes AS SELECT * FROM arrived LIMIT 0")
            cursor.execute("DELETE FROM episodes WHERE episode IN (SELECT episode FROM arrived)")
            cursor.execute("INSERT INTO episodes SELECT * FROM arrived")
            cursor.execute("COMMIT")
            cursor.unregister("arrived")
            ((self._stored,),) = cursor.execute("SELECT count(*) FROM episodes").fetchall()
        self._is_created = True

    def _cursor(self) -> Any:
        with self._lock:
            return self._connection.cursor()

    def _refused(self) -> str:
        wrong = [one for one in self.problems if one.kind in ("not_traces", "damaged_file")]
        return str(wrong[0]) if wrong else ""


def _connect(path: Path) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra(package="duckdb", extra="view", purpose="mttp view") from error
    return duckdb.connect(str(path))


@dataclass
class _LateTraces:
    """Traces of groups, updates and annotations, by the episodes that they are about."""

    updates: list[Update] = field(default_factory=list)
    _by_episode: dict[str, list[str]] = field(default_factory=dict)

    def of(self, trace_id: str) -> list[str]:
        """The traces about an episode."""
        return self._by_episode.get(trace_id, [])

    def about(self, one: SpanRecord) -> Iterator[str]:
        """The trace ids of the episodes that a span is about."""
        if (kind := summary_fields.kind(one)) not in _LATE:
            yield one.trace_id
            return
        if kind == names.UPDATE:
            self._add_update(one)
            return
        targets = (
            summary_fields.members(one)[1]
            if kind == names.GROUP
            else (str(one.attributes.get(a.ANNOTATION_TARGET_TRACE_ID, "")),)
        )
        for target in targets:
            self._by_episode.setdefault(target, []).append(one.trace_id)
            yield target

    def _add_update(self, one: SpanRecord) -> None:
        from mttp.codec import updates

        self.updates.append(updates.decode(one, [one]))


def _group(id: str, task: str | None, episodes: list[str], rewards: list[float], start: int) -> Group:
    known = [reward for reward in rewards if math.isfinite(reward)]
    return Group(
        id=id,
        task=task,
        episodes=tuple(episodes),
        rewards=tuple(rewards),
        size=len(episodes),
        valid_count=len(known),
        reward_mean=statistics.fmean(known) if known else None,
        reward_std=statistics.stdev(known) if len(known) > 1 else None,
        ddof=1,
        start_time=start,
    )


@dataclass(frozen=True)
class _Held:
    """Spans in memory, as a source of `read`."""

    spans: list[SpanRecord]

    def records(self) -> Iterable[SpanRecord]:
        """The spans."""
        return self.spans


def _spans_of(path: Path, part: FilePart | None, wanted: set[str]) -> Iterator[SpanRecord]:
    """The spans of some traces in a part of a file; without a part, in all of it."""
    if part is None and is_parquet(path):
        yield from parquet.read_traces(path, wanted)
        return
    if part is None:
        yield from (record for record in Scan(str(path), arrays=True) if record.trace_id in wanted)
        return
    for line in lines.decode(path, arrays=True, part=part):
        yield from (span for span in line.spans or () if span.trace_id in wanted)
