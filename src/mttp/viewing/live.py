"""The data of the pages of a recording that may grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from mttp.errors import MttpError, ReadError
from mttp.model.episodes import Annotation, Group
from mttp.model.version import __version__
from mttp.pages.tokens import Pieces
from mttp.study import Comparison, compare
from mttp.tables import Database
from mttp.viewing.diagnoses import MOST_EPISODES, Diagnoses, diagnoses, not_diagnosed
from mttp.viewing.episode_page import episode_page
from mttp.viewing.figures import Figures, figures
from mttp.viewing.index import EpisodeIndex, Snapshot
from mttp.viewing.overview import Contents, sections, with_problems
from mttp.viewing.queries import episode_rows
from mttp.viewing.rows import EpisodeColumn, columns, views

if TYPE_CHECKING:
    from mttp.reading import Recording

__all__ = ["LivePages"]

_POLL_SECONDS = 1.0
_SHARE = 0.1
"""Largest share of the time that is spent on overviews."""
_FIRST_ROWS_SECONDS = 3.0
_CHECK_SECONDS = 0.05
_GROWTH = 1.2
"""Growth in episodes after which a recording is diagnosed and compared again."""
_CLOSING_SECONDS = 1.0


class LivePages:
    """
    Follows recordings on a thread, and answers what pages ask.

    `baseline` is a recording to compare with, `pieces` returns the texts of token ids, and `keep_annotations`
    says whether `annotations` has any.
    """

    def __init__(
        self,
        sources: Sequence[str],
        *,
        baseline: Sequence[str] | None = None,
        pieces: Pieces | None = None,
        keep_annotations: bool = False,
    ) -> None:
        self._baseline = baseline
        self._baseline_figures = None if baseline is None else _figures_of(baseline)
        self._index = EpisodeIndex(sources, annotations=keep_annotations)
        self._pieces = pieces
        self._lock = threading.Lock()
        self._overview: dict[str, Any] | None = None
        self._columns: Sequence[EpisodeColumn] = ()
        self._built = (-1, 0.0, 0.0)
        """Version, time and duration in seconds of the last overview."""
        self._has_rows = False
        """Whether there were episodes at the last overview."""
        self._diagnoses: Diagnoses = {}
        self._comparison: Comparison | str | None = None
        self._studied = 0
        self._studying = threading.Thread()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mttp-view", daemon=True)

    def start(self) -> None:
        """Begin to follow; raises ReadError where there is nothing to follow."""
        self._index.check()
        self._thread.start()

    def stop(self) -> None:
        """Begin to end: no request waits for changes any more."""
        self._stopping.set()
        self._index.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def close(self) -> None:
        """Stop following, and remove the index."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join()
        if self.is_studying:
            self._studying.join(_CLOSING_SECONDS)
        self._index.close()

    @property
    def is_studying(self) -> bool:
        """Whether a diagnosis or comparison is under way, which can't be broken off."""
        return self._studying.is_alive()

    @property
    def version(self) -> int:
        """Raised with each change."""
        return self._index.version

    @property
    def annotations(self) -> dict[str, Annotation]:
        """The annotations that were read so far, by their trace ids."""
        return {**(self._index.annotations or {})}

    @property
    def is_read(self) -> bool:
        """Whether all that was there at first is read."""
        return self._index.is_read

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Give one state of the table `episodes`."""
        return self._index.snapshot()

    def __len__(self) -> int:
        return len(self._index)

    def overview(self) -> dict[str, Any]:
        """The overview; while a recording grows, not always the very last state."""
        with self._lock:
            self._wait_for_rows()
            version, at, seconds = self._built
            is_due = not self._has_rows or time.monotonic() - at > seconds / _SHARE
            is_old = version != self._index.version and is_due
            if self._overview is None or is_old:
                started = time.monotonic()
                version, self._has_rows = self._index.version, len(self._index) > 0
                self._overview = self._made()
                ended = time.monotonic()
                self._built = version, ended, ended - started
            return self._overview

    def _wait_for_rows(self) -> None:
        """Wait a little for the first episodes: without any, no column can be filtered by."""
        until = time.monotonic() + _FIRST_ROWS_SECONDS
        while not (len(self._index) or self._index.is_read or self.is_stopping) and time.monotonic() < until:
            time.sleep(_CHECK_SECONDS)

    def episodes(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """The rows of a query; raises ConfigureError if it is not valid."""
        if not self._columns:
            self.overview()
        with self._index.snapshot(is_search=True) as database:
            return episode_rows(database, self._columns, query)

    def interrupt(self) -> None:
        """End a query on another thread, which raises; called again until it does."""
        self._index.interrupt()

    def episode(self, trace_id: str) -> dict[str, Any]:
        """The page of an episode; raises ReadError if there is none."""
        recording = self._index.episode(trace_id)
        found = next((one for one in recording.episodes if one.trace_id == trace_id), None)
        if found is None:
            raise ReadError(f"episode {trace_id} can't be read")
        sources = self._index.sources
        return episode_page(
            found,
            group=_group(recording, trace_id),
            problems=[str(one) for one in recording.problems if one.trace_id == trace_id],
            pieces=self._pieces,
            source=sources[0] if len(sources) == 1 else "",
        )

    # Following.

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._index.refresh()
            except MttpError as error:
                self._index.note(str(error))
            self._study_soon()
            self._stopping.wait(_POLL_SECONDS)

    def _study_soon(self) -> None:
        """Diagnose and compare on a thread, after the recording has grown enough."""
        count = len(self._index)
        if count > MOST_EPISODES:
            self._diagnoses = not_diagnosed(count)
        elif count and count >= self._studied * _GROWTH and not self._studying.is_alive():
            self._studied = count
            self._studying = threading.Thread(target=self._study, name="mttp-view-study", daemon=True)
            self._studying.start()

    def _study(self) -> None:
        self._diagnoses = self._diagnosed()
        if self._baseline is not None:
            base = self._baseline
            self._comparison = _result(lambda: compare(base, self._index.sources))
        self._index.version += 1

    def _diagnosed(self) -> Diagnoses:
        try:
            with Database(self._index.sources) as database:
                return diagnoses(database, database.runs)
        except MttpError as error:
            return {"": str(error)}

    def _progress(self) -> str:
        """How much is read, while not all is."""
        return "" if self._index.is_read else f"{self._index.share:.0%} of the files are read so far."

    def _made(self) -> dict[str, Any]:
        (health, updates), runs = self._index.health(), self._index.runs()
        with self._index.snapshot() as database:
            contents = Contents(
                episodes=database,
                runs=runs,
                graders=health.graders,
                faults=health.faults,
                verdicts=health.verdicts,
                updates=updates,
                baseline=self._baseline_figures,
                comparison=self._comparison,
                diagnoses=self._diagnoses,
            )
            self._columns = columns(database)
            names = dict.fromkeys(run.name or run.id for run in runs)
            return {
                "title": ", ".join([*names][:3]) or "Recording",
                "sources": self._index.sources,
                "version": __version__,
                "made": int(time.time() * 1000),
                "sampling": self._progress(),
                "sections": with_problems(sections(contents), self._index.problems, health.faults),
                "columns": [one.to_dict() for one in self._columns],
                "views": views(database, self._columns),
            }


def _figures_of(sources: Sequence[str]) -> Figures:
    with Database(sources) as database:
        database.prepare("FROM episodes")
        return figures(database)


def _result(study: Callable[[], Any]) -> Any:
    """The result, or why there is none."""
    try:
        return study()
    except MttpError as error:
        return str(error)


def _group(recording: Recording, trace_id: str) -> Group | None:
    return next((group for group in recording.groups if trace_id in group.episodes), None)
