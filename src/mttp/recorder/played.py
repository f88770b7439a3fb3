"""An episode that was handed on as a whole, and its two spans."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

from opentelemetry.trace import SpanContext

from mttp.codec import series
from mttp.codec.series import Episode, Whole
from mttp.codec.transitions import Form
from mttp.livespan import SPAN_BYTES, LiveSpan
from mttp.recorder.block import Taken
from mttp.recorder.handle import Host
from mttp.recorder.ledger import Ledger
from mttp.recorder.live_block import LiveBlock
from mttp.recorder.live_root import ROOT_BYTES, LiveRoot
from mttp.recorder.segment import Segment
from mttp.spans import Scope

__all__ = ["Played", "PlayedRoot", "PlayedSteps"]


class Stated(Protocol):
    """What all episodes of an environment say, as attributes."""

    host: Host
    """The session that they belong to."""

    @property
    def said(self) -> Mapping[str, Any]:
        """These."""

    name: str
    """Their roots' name."""
    size: int
    """Roughly what these take in a file, in bytes."""


class Played:
    """An episode that has ended as a whole; its two spans are made where somebody needs them."""

    __slots__ = ("_end_time", "_parts", "_setting", "_taken", "size")

    stands_for, is_last = 2, True

    def __init__(self, setting: Stated, parts: tuple[Any, ...], taken: Taken) -> None:
        """`parts` are those of `Episode`, and `taken` are its steps."""
        self._setting = setting
        self._parts = parts
        self._taken = taken
        self._end_time: int | None = parts[4]
        self.size = _BYTES + setting.size + taken.size + _size(parts)

    @property
    def trace_id(self) -> int:
        """Its trace."""
        return self._parts[0]  # type: ignore[no-any-return]  # what `Episode` has there

    @property
    def scope(self) -> Scope:
        """Who made it."""
        return self._setting.host.origin.record

    @property
    def whole(self) -> Whole:
        """All that it says."""
        taken = self._taken
        return Whole(self._setting.said, cast(Form, taken.layout), self._parts, taken.rows)

    @property
    def spans(self) -> tuple[LiveSpan, LiveSpan]:
        """Its steps, and its root."""
        root = PlayedRoot(Segment(self._setting.host, self.trace_id), self._setting, self._parts, self._taken)
        return PlayedSteps(root, self._parts, self._taken), root


class PlayedRoot(LiveRoot):
    """The episode's root, which is made when the episode has ended."""

    is_whole = True

    def __init__(self, segment: Segment, setting: Stated, parts: tuple[Any, ...], taken: Taken) -> None:
        """`parts` are those of `Episode`, and `taken` are its steps."""
        self._segment = segment
        self._stated = setting.said
        self._parts = parts
        self._taken = taken
        self._name = setting.name
        _, self._span_id, _, self._start_time, self._end_time, *_ = parts
        self._is_bare = self._is_light = self.is_plain = False
        self._scalars = self.block = None
        self.size = ROOT_BYTES + setting.size + _size(parts)

    def _say(self) -> dict[str, Any]:
        paid, invalid = self._taken.paid()
        ledger = Ledger([])
        ledger.steps(paid, invalid=invalid)
        return series.root(self.stated, self._form.parts, Episode(*self._parts), ledger.totals())

    @property
    def _form(self) -> Form:
        return cast(Form, self._taken.layout)

    def whole(self, before: object) -> Whole | None:
        """All that it says, where `before` are its steps, and nobody has asked for either's attributes."""
        if type(before) is not PlayedSteps or before.root is not self or before._scalars is not None:
            return None
        found = Whole(self.stated, self._form, self._parts, self._taken.rows)
        return found if self._scalars is None else None  # last: somebody may look meanwhile


class PlayedSteps(LiveBlock):
    """All its steps."""

    def __init__(self, root: PlayedRoot, parts: tuple[Any, ...], taken: Taken) -> None:
        """`parts` are those of `Episode`."""
        self.root = root
        self._segment = root._segment
        self._span_id = parts[2]
        self._place = _NOWHERE
        self._steps = taken
        self._first_index = 0
        self._uncounted = [None]
        self._is_light = self.is_plain = False
        self._scalars = self.block = None
        self._start_time, self._end_time = taken.start_time, root._end_time
        self.size = SPAN_BYTES + taken.size

    @property
    def _parent(self) -> SpanContext:  # type: ignore[override]  # other spans are given theirs
        return self.root.identity


def _size(parts: tuple[Any, ...]) -> int:
    """What the last observation takes."""
    *_, final, _ = parts
    return len(final) if type(final) is bytes else 0


_BYTES = ROOT_BYTES + SPAN_BYTES
"""What an episode's two spans take, but for its steps and what is stated of it."""
_NOWHERE: Mapping[str, Any] = MappingProxyType({})
