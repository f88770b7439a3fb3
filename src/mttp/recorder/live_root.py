"""An episode's root: the span of which all its others are children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Link, Span, SpanContext, TraceFlags

from mttp import clock, ids
from mttp.codec import episodes as codec
from mttp.codec.deferred import ENDING, Deferred
from mttp.livespan import SPAN_BYTES, VALUE_BYTES, weight
from mttp.recorder.ledger import Ledger
from mttp.recorder.light_span import LightSpan
from mttp.recorder.segment import Segment
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["ROOT_BYTES", "LiveRoot"]

_SAMPLED, _UNSAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
ROOT_BYTES = SPAN_BYTES + 12 * VALUE_BYTES
"""What the root of an episode takes in a file of which nothing was stated."""


class LiveRoot(LightSpan):
    """
    An episode's root, parentless, so that nobody's sampling swallows it, but linked to what is current.

    Of the episode it holds what it says, and not the episode, which holds the root.
    """

    _name = names.EPISODE
    _parent = None
    is_last = True
    of_episode = True
    _end: tuple[Ledger | None, list[float], int, int, int] | None = None

    def __init__(
        self,
        segment: Segment,
        index: int,
        stated: Mapping[str, Any] | None,
        ambient: Span | None,
        start_time: int | None = None,
    ) -> None:
        """
        Start now, or at `start_time`.

        `stated` are the attributes of what the caller says of the episode, where that is anything.
        """
        self._segment = segment
        self._index = index
        self._stated = stated
        self._is_bare = stated is None
        self._span_id = ids.span_id()
        self._is_open = self._is_light = True
        self.is_plain = False
        self._scalars = self._end_time = self.block = None
        self.size = 0
        self._name = segment.host.root_name if stated is None else segment.host.name_root(stated)
        if ambient is not None and (context := ambient.get_span_context()).is_valid:
            self._links, self._is_light = [Link(context)], False
        if start_time is None and segment.origin.observers is None:
            self._start_time = segment.offset + clock.monotonic()
        else:
            self._start(start_time)

    @property
    def stated(self) -> Mapping[str, Any]:
        """What was known when the episode started."""
        if self._stated is None:
            self._stated = codec.unstated(*self._known())
        return self._stated

    def _known(self) -> tuple[str, str, int]:
        segment = self._segment
        return segment.host.run_id, segment.episode_id, self._index

    @property
    def identity(self) -> SpanContext:
        """Its context, which says whether collectors get the episode."""
        if self._context is None:
            host = self._segment.host
            group = None if self._stated is None else self._stated.get(a.GROUP_ID)
            flags = _SAMPLED if host.samples(self.trace_id, group) else _UNSAMPLED
            self._context = SpanContext(self.trace_id, self._span_id, is_remote=False, trace_flags=flags)
        return self._context

    def _say(self) -> dict[str, Any]:
        return dict(self.stated)

    @property
    def scalars(self) -> dict[str, Any]:
        """Its attributes; how an ordinary episode ended is worked out when somebody asks, too."""
        found, end = super().scalars, self._end
        if end is not None:
            found.update(_ending(*end))
            self._end = None
        return found

    @scalars.setter
    def scalars(self, scalars: dict[str, Any]) -> None:
        self._scalars, self._end = scalars, None

    def facts(self) -> tuple[Mapping[str, Any], Deferred | None]:
        """Its attributes; how it ended is worked out later where only its steps state rewards."""
        end, scalars = self._end, self._scalars
        if end is None or end[0] is not None or scalars is not None:
            return super().facts()
        return self.stated, (ENDING, end[1:])

    def conclude_lightly(
        self, ledger: Ledger | None, step_rewards: list[float], length: int, steps: int, spans: int
    ) -> None:
        """
        End an episode of which nothing unusual was said, so that it is completed, and nobody knows how.

        It had so many environment steps, handles of them and spans, itself among those; a ledger tells what
        was paid, and where there is none those rewards do.
        """
        segment = self._segment
        try:
            del self._is_open
        except AttributeError:  # it has ended within its block
            return
        self._end = ledger, step_rewards, length, steps, spans
        self.is_plain, self._is_light = self._is_bare, False
        self._end_time = segment.offset + clock.monotonic()
        self.size = ROOT_BYTES if self._is_bare else ROOT_BYTES + weight(dict(self.stated))
        if segment.origin.observers is not None:
            self._show_end(segment.origin.observers)
        take = segment.host.take
        take(self)


def _ending(
    ledger: Ledger | None, step_rewards: list[float], length: int, steps: int, spans: int
) -> dict[str, Any]:
    if ledger is None:
        return codec.plain_ending(step_rewards, length, steps, spans)
    facts: dict[str, Any] = {"status": "completed", "outcome": "unknown", "length": length}
    facts["return_"], facts["step_reward_sum"], basis = ledger.totals()
    return codec.ending(facts, [], return_basis=basis, step_count=steps, span_count=spans)
