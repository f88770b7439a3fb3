"""An index of the episodes of growing recordings, in DuckDB on disk."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mttp.codec import annotations as annotation_codec
from mttp.codec import runs as run_codec
from mttp.codec import summary_fields
from mttp.codec.kinds import is_annotation, is_run
from mttp.errors import ReadError
from mttp.model.counting import training_runs
from mttp.model.episodes import Annotation, Run
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
from mttp.tables.database import arrays_of, column_types, require_duckdb, rows_of
from mttp.tables.growing import CHANGED, GrowingEpisodes
from mttp.tables.statements import statement
from mttp.tables.summary import HEALTH, Health, health
from mttp.viewing.figures import UPDATES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EpisodeIndex", "Snapshot"]

_STORE_SECONDS = 1.0
"""Time after which episodes of a large file are shown before it is read to its end."""
_FIRST_STORE_SECONDS = 0.2
_OF_SPANS = ", ".join(f'"{name}"' for name in column_types([], HEALTH))
_QUERIES: Final[Mapping[str, tuple[str, str]]] = {
    "gradings": ("SELECT * FROM gradings", "episode"),
    "updates": ("SELECT * FROM updates", "trace_id"),
    "roots": ("SELECT trace_id, place, is_finished FROM roots WHERE NOT is_finished", "trace_id"),
    "spans": (
        f"SELECT trace_id, span_id, place, type, start_time, {_OF_SPANS} FROM spans "
        "WHERE type = 'annotate' OR len(fault_kinds) > 0",
        "trace_id",
    ),
}
"""The tables beside `episodes`, with the column by which their rows are replaced; HEALTH asks for them."""


class EpisodeIndex:
    """
    The episodes of files that may grow: rows in DuckDB, and where the spans of each episode are.

    One thread calls `refresh`; others may query at the same time. `close` removes the database.
    """

    def __init__(self, sources: Sequence[str], *, annotations: bool = False) -> None:
        self.sources = [*sources]
        self.annotations: dict[str, Annotation] | None = {} if annotations else None
        """Annotations by their trace ids, without components of scores; None unless they are wanted."""
        self._directory = tempfile.TemporaryDirectory(prefix="mttp-view-")
        self._connection = require_duckdb().connect(f"{self._directory.name}/episodes.duckdb")
        self._lock = threading.Lock()
        self._searches: set[Any] = set()
        """Cursors that `interrupt` interrupts."""
        self._is_stopping = False
        self._growing = GrowingEpisodes(*HEALTH, UPDATES, content=True)
        self._training: frozenset[str] = frozenset()
        """Ids of the runs that train."""
        self._counted = CountedSpans()
        self._runs: dict[str, dict[str, SpanRecord]] = {}
        """Spans of runs by trace and span id."""
        self._follower = Follower(self.sources, arrays=True)
        self._files: dict[Path, int] = {}
        self._late = _LateTraces()
        self._stored = 0
        self._noted: list[str] = []
        self.is_read = False
        """Whether all that was there at first is read."""
        self.version = 0
        """Raised with each change of what can be seen."""
        with self._cursor() as cursor:
            cursor.execute("CREATE TABLE places (trace VARCHAR, file INTEGER, first BIGINT, last BIGINT)")
            for name, rows in self._changed().items():
                if name == "changed":
                    continue
                cursor.register("arrived", rows)
                cursor.execute(f"CREATE TABLE {name} AS SELECT * FROM arrived")
                cursor.unregister("arrived")
            cursor.execute(f"CREATE VIEW trained AS {statement('trained')}")

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
            if time.monotonic() - stored > (_STORE_SECONDS if self._stored else _FIRST_STORE_SECONDS):
                self._store()
                self.version += 1
                stored = time.monotonic()
        self._store()
        self.version += is_changed
        self.is_read = True
        if not is_changed and not self._stored and (refused := self._refused()):
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

    @contextmanager
    def snapshot(self, *, is_search: bool = False) -> Iterator[Snapshot]:
        """
        Give one state of the table `episodes`.

        The queries of a search raise the database's InterruptException after a call of `interrupt`.
        """
        with self._cursor() as cursor:
            with self._lock:
                self._searches |= {cursor} if is_search else set()
            try:
                cursor.execute("BEGIN")
                yield Snapshot(cursor)
            finally:
                with self._lock:
                    self._searches.discard(cursor)
                cursor.execute("ROLLBACK")

    def interrupt(self) -> None:
        """Interrupt the query that a search is at; one that begins later must be interrupted again."""
        with self._lock:
            for cursor in self._searches:
                cursor.interrupt()

    def __len__(self) -> int:
        return self._stored

    @property
    def share(self) -> float:
        """The share of the files' bytes that is read."""
        total = size(self.sources)
        return min(1.0, self._follower.bytes_read / total) if total else 1.0

    def episode(self, trace_id: str) -> Recording:
        """A recording of one episode with its later facts; raises ReadError if there is none."""
        query = "SELECT DISTINCT file, first, last FROM places WHERE trace = $trace"
        with self.snapshot() as database:
            places = database.rows(query, {"trace": trace_id})
        if not places:
            raise ReadError(f"there is no episode {trace_id}")
        files = {number: path for path, number in self._files.items()}
        trace_ids = {trace_id, *self._late.of(trace_id)}
        records: list[SpanRecord] = []
        for place in places:
            part = None if place["first"] is None else FilePart(place["first"], place["last"])
            records += _spans_of(files[place["file"]], part, trace_ids)
        return read(_Held(records))

    def runs(self) -> list[Run]:
        """The runs in order of start."""
        runs = []
        for spans in [*self._runs.values()]:
            try:
                runs.append(run_codec.decode(list(spans.values())))
            except Exception:  # a broken run must not hide the others
                continue
        return sorted(runs, key=lambda run: (run.start_time or 0, run.id))

    @property
    def problems(self) -> list[Problem]:
        """Problems of what was read so far."""
        return self.problems_of(())

    def problems_of(self, run_ids: Collection[str]) -> list[Problem]:
        """Return the problems of what was read so far of these runs, by default of all."""
        noted = [Problem(kind="damaged_file", message=message) for message in self._noted]
        runs = [run for run in self.runs() if not run_ids or run.id in run_ids]
        missing = missing_episodes(runs, self._counted.by_run) if self.is_read else ()
        lacking = [Problem(kind="missing_episodes", message=message) for message in missing]
        following = self._follower.problems
        if run_ids and following:
            files = self._files_of(run_ids)
            following = [problem for problem in following if problem.file is None or problem.file in files]
        return [*lacking, *following, *noted]

    def _files_of(self, run_ids: Collection[str]) -> set[str]:
        """Return the paths of the files with episodes of these runs, and of those without any episode."""
        query = "SELECT DISTINCT file, run_id IN (SELECT unnest($runs::VARCHAR[])) AS is_of FROM places "
        with self.snapshot() as database:
            rows = database.rows(f"{query} JOIN episodes ON trace_id = trace", {"runs": [*run_ids]})
        others = {row["file"] for row in rows if not row["is_of"]} - {
            row["file"] for row in rows if row["is_of"]
        }
        return {str(path) for path, number in self._files.items() if number not in others}

    def note(self, message: str) -> None:
        """Add an error of following to the problems, once."""
        if message not in self._noted:
            self._noted.append(message)
            self.version += 1

    def check(self) -> None:
        """Raise ReadError if a source does not exist, or can't be followed."""
        self._follower.files()

    def health(self, run_ids: Collection[str] = ()) -> Health:
        """Return the health of graders, the faults and the verdicts of these runs, by default of all."""
        with self.snapshot() as database:
            return health(database, self.runs(), run_ids or None)

    @property
    def updates(self) -> list[dict[str, Any]]:
        """The rows of `UPDATES`."""
        with self.snapshot() as database:
            return database.rows(UPDATES)

    # Storing.

    def _add(self, arrived: Arrived) -> None:
        number = self._files.setdefault(arrived.path, len(self._files))
        places: dict[str, None] = {}
        self._growing.add(arrived.spans)
        for span in arrived.spans:
            self._counted.add(span)
            if self.annotations is not None and is_annotation(span):
                self.annotations[span.trace_id] = annotation_codec.decode(span)
            if is_run(span):
                self._runs.setdefault(span.trace_id, {}).setdefault(span.span_id, span)
            for trace_id in self._late.about(span):
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
            cursor.execute("INSERT INTO places SELECT * FROM arrived")
            cursor.unregister("arrived")

    def _store(self) -> None:
        """Write the rows that changed; again those of the runs that turn out to train, or not to."""
        while self._growing.has_changed:
            tables = self._changed()
            with self._cursor() as cursor:
                cursor.register("changed", tables.pop("changed"))
                cursor.execute("BEGIN")
                for name, rows in tables.items():
                    cursor.register("arrived", rows)
                    key = _QUERIES[name][1] if name in _QUERIES else "trace_id"
                    ids = "FROM changed" if name in _QUERIES else "SELECT trace_id FROM arrived"
                    cursor.execute(f"DELETE FROM {name} WHERE {key} IN ({ids})")
                    cursor.execute(f"INSERT INTO {name} SELECT * FROM arrived")
                    cursor.unregister("arrived")
                cursor.execute("COMMIT")
                cursor.unregister("changed")
                ((self._stored,),) = cursor.execute("SELECT count(*) FROM episodes").fetchall()
                played = cursor.execute("SELECT DISTINCT run_id, task, split FROM episodes").fetchall()
            training = training_runs(self.runs(), played, with_updates=self._late.updating)
            self._growing.change(training ^ self._training)
            self._training = training

    def _changed(self) -> dict[str, Any]:
        """Return the rows that changed, by table."""
        return self._growing.changed_tables(
            {"episodes": (f"SELECT * {CHANGED}", None), **_QUERIES}, self._training
        )

    def _cursor(self) -> Any:
        with self._lock:
            return self._connection.cursor()

    def _refused(self) -> str:
        wrong = [problem for problem in self.problems if problem.kind in ("not_traces", "damaged_file")]
        return str(wrong[0]) if wrong else ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of an index."""

    connection: Any

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        return rows_of(self.connection, query, parameters)

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a query's result; a number that is null is NaN."""
        return arrays_of(self.connection, query)


@dataclass
class _LateTraces:
    """Traces of groups and annotations, by the episodes that they are about."""

    updating: set[str] = field(default_factory=set)
    """Ids of the runs with updates."""
    _by_episode: dict[str, list[str]] = field(default_factory=dict)

    def of(self, trace_id: str) -> list[str]:
        """Return the traces about an episode."""
        return self._by_episode.get(trace_id, [])

    def about(self, record: SpanRecord) -> Iterator[str]:
        """Yield the trace ids of the episodes that a span is about."""
        kind = summary_fields.kind(record)
        if kind == names.UPDATE:
            self.updating.add(str(record.attributes.get(a.RUN_ID, "")))
        elif kind == names.GROUP:
            yield from self._about(record, summary_fields.members(record)[1])
        elif kind == names.ANNOTATE:
            yield from self._about(record, [str(record.attributes.get(a.ANNOTATION_TARGET_TRACE_ID, ""))])
        else:
            yield record.trace_id

    def _about(self, record: SpanRecord, episodes: Iterable[str]) -> Iterator[str]:
        for trace_id in episodes:
            self._by_episode.setdefault(trace_id, []).append(record.trace_id)
            yield trace_id


@dataclass(frozen=True)
class _Held:
    """Spans in memory, as a source of `read`."""

    spans: list[SpanRecord]

    def records(self) -> Iterable[SpanRecord]:
        """The spans."""
        return self.spans


def _spans_of(path: Path, part: FilePart | None, trace_ids: set[str]) -> Iterator[SpanRecord]:
    """The spans of some traces in a part of a file; without a part, in all of it."""
    if part is None and is_parquet(path):
        yield from parquet.read_traces(path, trace_ids)
        return
    if part is None:
        yield from (record for record in Scan(str(path), arrays=True) if record.trace_id in trace_ids)
        return
    for line in lines.decode(path, arrays=True, part=part):
        yield from (span for span in line.spans or () if span.trace_id in trace_ids)
