"""The two spans of an environment's episode that ended before anybody asked for a handle."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from opentelemetry.trace import SpanContext

from mttp import ids
from mttp.codec.deferred import ENV_EPISODE, Deferred, encoded
from mttp.codec.transitions import Form
from mttp.livespan import SPAN_BYTES
from mttp.recorder.block import Taken
from mttp.recorder.ledger import Ledger
from mttp.recorder.live_block import LiveBlock
from mttp.recorder.live_root import ROOT_BYTES, LiveRoot
from mttp.recorder.segment import Segment

__all__ = ["PlayedRoot", "PlayedSteps"]

_NOWHERE: Mapping[str, Any] = MappingProxyType({})


class PlayedRoot(LiveRoot):
    """The episode's root, which is made when the episode has ended."""

    def __init__(
        self,
        segment: Segment,
        name: str,
        stated: Mapping[str, Any],
        facts: tuple[Any, ...],
        taken: Taken,
        start_time: int,
        end_time: int,
        size: int,
    ) -> None:
        """
        `stated` are the attributes that all episodes of the environment have.

        `facts` are what this one states besides, as `codec.deferred` takes it, and `taken` are its steps.
        """
        self._segment = segment
        self._stated = stated
        self._facts = facts
        self._taken = taken
        self._name = name
        self._span_id = ids.span_id()
        self._start_time, self._end_time = start_time, end_time
        self._is_bare = self._is_light = self.is_plain = False
        self._scalars = self.block = None
        self.size = ROOT_BYTES + size

    def _say(self) -> dict[str, Any]:
        return {**self.stated, **encoded(self._late())}

    def _late(self) -> Deferred:
        paid, invalid = self._taken.paid()
        ledger = Ledger([])
        ledger.steps(paid, invalid=invalid)
        return ENV_EPISODE, (*self._facts, cast(Form, self._taken.layout).parts, ledger.totals())

    def facts(self) -> tuple[Mapping[str, Any], Deferred | None]:
        """Its attributes; what differs between the episodes of an environment is worked out later."""
        return (self.stated, self._late()) if self._scalars is None else super().facts()


class PlayedSteps(LiveBlock):
    """All its steps."""

    def __init__(self, root: PlayedRoot, taken: Taken) -> None:
        self.root = root
        self._segment = root._segment
        self._span_id = ids.span_id()
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
