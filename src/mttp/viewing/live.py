"""The data of the pages of a recording that may grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from mttp.errors import MttpError, ReadError
from mttp.model.episodes import Annotation, Group, Run
from mttp.model.version import __version__
from mttp.pages.tokens import Pieces
from mttp.study import Comparison, compare
from mttp.tables import Database
from mttp.viewing.diagnoses import MOST_EPISODES, Diagnoses, diagnoses, not_diagnosed
from mttp.viewing.episode_page import episode_page
from mttp.viewing.figures import Figures, figures
from mttp.viewing.index import EpisodeIndex, Snapshot
from mttp.viewing.overview import Contents, marks, sections, with_problems
from mttp.viewing.picking import contents_of, of_all_runs
from mttp.viewing.queries import episode_rows
from mttp.viewing.rows import columns, views
from mttp.viewing.update_page import update_page

if TYPE_CHECKING:
    from mttp.reading import Recording

__all__ = ["LivePages", "Picked"]

_POLL_SECONDS = 1.0
_SHARE = 0.1
"""Largest share of the time that is spent on overviews."""
_FIRST_ROWS_SECONDS = 3.0
_CHECK_SECONDS = 0.05
_GROWTH = 1.2
"""Growth in episodes after which a recording is diagnosed and compared again."""
_CLOSING_SECONDS = 1.0
_MOST_OVERVIEWS = 8
"""Number of overviews that are kept, one for each choice of runs."""
Picked: TypeAlias = "tuple[str, ...]"
"""The ids of the picked runs; none means all."""


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
        self._overviews: dict[Picked, _Overview] = {}
        self._told = 0
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
        return self._index.version + self._told

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

    def overview(self, picked: Picked = ()) -> dict[str, Any]:
        """
        Return the overview of the runs with these ids, by default of all.

        While a recording grows, it is not always the very last state.
        """
        with self._lock:
            self._wait_for_rows()
            built = self._overviews.pop(picked, None)
            if built is None or built.is_old(self._index.version):
                started = time.monotonic()
                version, has_rows = self._index.version, len(self._index) > 0
                page = self._made(picked)
                ended = time.monotonic()
                built = _Overview(page, version, has_rows, ended, ended - started)
            self._overviews[picked] = built  # the last one that was asked for is the last to be forgotten
            while len(self._overviews) > _MOST_OVERVIEWS:
                del self._overviews[next(iter(self._overviews))]
            return built.page

    def overview_so_far(self) -> dict[str, Any]:
        """Return the overview of all runs that was made last, else one without sections, at once."""
        built = self._overviews.get(())
        return self._page((), [], self._index.runs()) if built is None else built.page

    def tell(self) -> None:
        """Raise the version: an overview that was waited for is made."""
        self._told += 1

    def _wait_for_rows(self) -> None:
        """Wait a little for the first episodes: without any, there is nothing to show."""
        until = time.monotonic() + _FIRST_ROWS_SECONDS
        while not (len(self._index) or self._index.is_read or self.is_stopping) and time.monotonic() < until:
            time.sleep(_CHECK_SECONDS)

    def episodes(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rows of a query with their columns; raises ConfigureError if it is not valid."""
        with self._index.snapshot(is_search=True) as database:
            return episode_rows(database, query)

    def update(self, run_id: str, index: int) -> dict[str, Any]:
        """Return the page of an update; raises ReadError if there is none."""
        names = {run.id: run.name or run.id for run in self._index.runs()}
        with self._index.snapshot() as database:
            return update_page(database, self._index.updates, names, run_id, index)

    def interrupt(self) -> None:
        """End a query on another thread, which raises; called again until it does."""
        self._index.interrupt()

    def episode(self, trace_id: str) -> dict[str, Any]:
        """The page of an episode; raises ReadError if there is none."""
        recording = self._index.episode(trace_id)
        episode = next((each for each in recording.episodes if each.trace_id == trace_id), None)
        if episode is None:
            raise ReadError(f"episode {trace_id} can't be read")
        sources = self._index.sources
        return episode_page(
            episode,
            group=_group(recording, trace_id),
            problems=[str(each) for each in recording.problems if each.trace_id == trace_id],
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

    def _made(self, picked: Picked) -> dict[str, Any]:
        runs = self._index.runs()
        with self._index.snapshot() as database:
            contents = Contents(
                episodes=database,
                runs=runs,
                updates=self._index.updates,
                baseline=self._baseline_figures,
                comparison=self._comparison,
                diagnoses=self._diagnoses,
            )
            health = self._index.health(picked)
            of_picked = contents_of(contents, picked, health) if picked else None
            contents = replace(
                contents, graders=health.graders, faults=health.faults, verdicts=health.verdicts
            )
            made = sections(contents, of_picked)
            problems = self._index.problems_of(picked)
            page = self._page(picked, with_problems(made, problems, health.faults), runs)
            shown = contents if of_picked is None else of_picked
            listed = columns(shown.episodes)
            return page | {
                "columns": [column.to_dict() for column in listed],
                "views": views(shown.episodes, listed),
                "marks": marks(shown),
                "of_all": of_all_runs(contents),
            }

    def _page(self, picked: Picked, made: Sequence[dict[str, Any]], runs: Sequence[Run]) -> dict[str, Any]:
        """Return an overview with these sections."""
        names = {run.id: run.name or run.id for run in runs}
        return {
            "title": ", ".join([*dict.fromkeys(names.values())][:3]) or "Recording",
            "sources": self._index.sources,
            "version": __version__,
            "made": int(time.time() * 1000),
            "sampling": self._progress(),
            "runs": [{"id": run_id, "name": name} for run_id, name in names.items()],
            "picked": picked,
            "sections": made,
            "columns": [],
            "views": [],
            "marks": [],
            "of_all": "",
        }


@dataclass(frozen=True, slots=True)
class _Overview:
    """An overview, and when it was made."""

    page: dict[str, Any]
    version: int
    """The version of the index."""
    has_rows: bool
    """Whether there were episodes."""
    time: float
    seconds: float
    """How long it took."""

    def is_old(self, version: int) -> bool:
        """Return whether there is a newer state, and time to show it."""
        is_due = not self.has_rows or time.monotonic() - self.time > self.seconds / _SHARE
        return version != self.version and is_due


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
