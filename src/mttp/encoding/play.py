"""Episodes of one environment that are written together, two spans each: its root, and its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mttp.codec import series
from mttp.codec.episodes import span_name
from mttp.codec.profiles import Profile
from mttp.codec.series import Episode, Group, Series
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import Scope, SpanRecord
from mttp.wire import otlp_json
from mttp.wire.otlp_json import Part

__all__ = ["Plays"]

_FLAGS = 0x100
"""OTLP's, of spans whose parent, if they have one, is this process's."""


class Plays(NamedTuple):
    """Episodes that follow each other."""

    scope: Scope
    episodes: Series

    def records(self, profile: Profile) -> Iterator[SpanRecord]:
        """Each span as a record, its attributes as `profile` delivers them."""
        name = span_name(self.episodes.said)
        for episode, steps, root in series.words(self.episodes):
            yield self._record(
                names.STEPS,
                trace_id=episode.id,
                span_id=f"{episode.steps_id:016x}",
                parent_id=f"{episode.root_id:016x}",
                start_time=episode.begun,
                end_time=episode.end_time,
                attributes=profile(steps),
            )
            yield self._record(
                name,
                trace_id=episode.id,
                span_id=f"{episode.root_id:016x}",
                start_time=episode.start_time,
                end_time=episode.end_time,
                attributes=profile(root),
            )

    def _record(self, name: str, **facts: Any) -> SpanRecord:
        return SpanRecord(name=name, scope=self.scope, flags=_FLAGS, **facts)

    def parts(self) -> Iterator[Part]:
        """Both spans of each, written, arrays packed."""
        found = [Episode(*parts) for parts in self.episodes.parts]
        parents, begun = [one.root_id for one in found], [one.begun for one in found]
        steps = self._texts(
            names.STEPS,
            found,
            parents,
            [one.steps_id for one in found],
            begun,
            series.steps(self.episodes, found),
        )
        started = [one.start_time for one in found]
        name = span_name(self.episodes.said)
        roots = self._texts(name, found, None, parents, started, series.roots(self.episodes, found))
        for episode, *texts in zip(found, steps, roots, strict=True):
            yield episode.id, self.scope, texts

    def _texts(
        self,
        name: str,
        found: Sequence[Episode],
        parents: Sequence[int] | None,
        ids: Sequence[int],
        started: Sequence[int],
        groups: Iterator[Group],
    ) -> list[bytes]:
        """One span of each, in order."""
        common = {a.RUN_ID: self.episodes.said[a.RUN_ID]}
        traces, ended = [one.trace_id for one in found], [one.end_time for one in found]
        shared = otlp_json.apart(
            self._record(name, trace_id="", span_id="", attributes=common), traces, parents
        )
        before, after, about = shared
        texts = [b""] * len(found)
        for places, said, columns in groups:
            picked = [[each[place] for place in places] for each in (before, after, ids, started, ended)]
            picked.insert(2, [about] * len(places))
            for place, text in zip(places, otlp_json.alike(said[1:], [*picked, *columns]), strict=True):
                texts[place] = text
        return texts
