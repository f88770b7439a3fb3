"""Episodes of an environment, of which most are over without anybody having asked for a handle."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from typing_extensions import Self

from mttp import ids
from mttp.codec import episodes as codec
from mttp.codec.generators import State
from mttp.codec.plain import Faults, Written
from mttp.livespan import weight
from mttp.recorder.block import Block, Layout, Taken
from mttp.recorder.handle import SPAN_KEY, Host, current
from mttp.recorder.open_episode import OpenEpisode, hide_secrets, inert
from mttp.recorder.packing import PACKED
from mttp.recorder.played import PlayedRoot, PlayedSteps
from mttp.recorder.segment import Segment
from mttp.semconv import attributes as a

__all__ = ["Play", "Setting"]


_SETTLED = frozenset({type(None), bool, int, float, str, Written, list})
"""Facts that are the same for each episode; of others the text may change."""


class Setting:
    """What is stated of each episode of one environment; it is put in words once."""

    def __init__(self, host: Host, facts: Mapping[str, Any]) -> None:
        """`facts` are under the names that `mttp.Episode` has."""
        faults: Faults = []
        self.host = host
        self.facts = {**facts, "timing": "live"}
        self.said = codec.identity(host.run_id, "", faults, self.facts)
        hide_secrets(host, self.said)
        self.name = host.name_root(self.said)
        self.size = weight(self.said)
        is_settled = all(type(fact) in _SETTLED or fact == {} for fact in facts.values())
        is_named = a.ENV_ID in self.said  # the roots of episodes that are written together are named by it
        self._is_plain = is_settled and is_named and not faults and host.environment_steps == PACKED

    def play(self, start_time: int, seed: int | None, generator: State | str | None) -> Play | None:
        """Start an episode; None where it needs a handle: there is more to say, or somebody looks on."""
        if not self._is_plain or SPAN_KEY in current() or self.host.origin.observers is not None:
            return None
        return Play(self, start_time, seed, generator)


class Play:
    """
    An episode whose transitions gather with the least there is to do for each.

    `open` gives its handle: then it goes on as any other. Where nobody has asked for that by its end,
    `conclude` hands it on as a whole.
    """

    _handle: OpenEpisode | None = None
    _block: Block | None = None
    _index: int | None = None

    def __init__(self, setting: Setting, start_time: int, seed: int | None, generator: State | str | None):
        self._setting = setting
        self._start_time = start_time
        self._seed = seed
        self._generator = generator
        self._is_over = False
        self._lock = threading.RLock()
        self._index = setting.host.opened(self)

    @classmethod
    def of(cls, episode: OpenEpisode) -> Self:
        """One that has a handle already."""
        found = cls.__new__(cls)
        found._handle, found._lock = episode, threading.RLock()
        return found

    def __bool__(self) -> bool:
        """Whether it has begun: whoever writes may see it while it does."""
        return self._index is not None or self._handle is not None

    @property
    def packs(self) -> bool:
        """Whether its transitions may gather."""
        return self._handle is None or self._handle.packs

    @property
    def count(self) -> int:
        """Steps of which there was a handle, or which were written, so far."""
        return 0 if self._handle is None else self._handle.length

    def open(self) -> OpenEpisode:
        """The episode's handle; an inert one where it was handed on as a whole."""
        with self._lock:
            if self._handle is None:
                episode = inert() if self._is_over else self._opened()
                if self._handle is None:  # still: a signal's handler may have asked meanwhile
                    self._handle = episode
                    self._settle(episode)
            return self._handle

    def _opened(self) -> OpenEpisode:
        """A handle that nobody else knows of."""
        setting, block = self._setting, self._block
        facts = {**setting.facts, "seed": self._seed, "env_rng_sha256": self._generator}
        episode = OpenEpisode(
            setting.host,
            facts,
            start_time=self._start_time,
            steps=setting.host.environment_steps,
            begun=self._index,
        )
        if block is not None:
            episode.gather(block)
        return episode

    def _settle(self, episode: OpenEpisode) -> None:
        """Have the session know the handle, and of what gathered before it did."""
        if episode:
            self._setting.host.replaced(self, by=episode)
            if self._block is not None and self._block.rows:
                episode.gathers()

    def mark(self) -> None:
        """Have the episode and its steps so far written, lest the process dies; called by whoever flushes."""
        with self._lock:
            if not self._is_over:
                episode = self.open()
                episode.mark()
                episode.write()

    def gather(self, layout: Layout, start_time: int) -> Block:
        """
        Where its transitions gather from here on, of which the first began at `start_time`.

        Who adds the first of some calls `gathers`, and of many `write`.
        """
        with self._lock:
            if self._block is not None and self._block.rows:
                self.open()  # which has those of another layout written first
            block = self._block = Block(layout, start_time)
            if self._handle is not None:
                self._handle.gather(block)
            return block

    def gathers(self) -> None:
        """Have what gathers written within the session's interval."""
        if self._handle is not None:  # else it is known to the session, which marks it
            self._handle.gathers()

    def write(self) -> None:
        """Hand on what has gathered so far."""
        self.open().write()

    def conclude(self, outcome: str | None, final: Any, end_time: int) -> bool:
        """
        End an episode of which nobody asked for a handle, after the last of its transitions.

        `final` is the last observation: an array's elements as bytes, a number of Python's that int64 holds
        if it is whole, or None. False where somebody did: then that is to be ended.
        """
        with self._lock:
            if self._handle is not None or self._setting.host.origin.observers is not None:
                return False
            self._is_over = True
        setting, block, self._block = self._setting, self._block, None
        assert block is not None  # there were transitions
        rows, generator = block.rows, self._generator
        host, segment = setting.host, Segment(setting.host, ids.trace_id())
        facts = (
            segment.episode_id,
            self._index,
            self._seed,
            generator.parts if type(generator) is State else generator,
            outcome or "unknown",
            rows[-1][3:5],
            final,
            len(rows),
        )
        taken = Taken(rows, block.start_time, block.layout)
        size = setting.size + (len(final) if type(final) is bytes else 0)
        root = PlayedRoot(segment, setting.name, setting.said, facts, taken, self._start_time, end_time, size)
        host.finished(self)
        host.packed(len(rows))
        host.take(PlayedSteps(root, taken))
        host.take(root)
        return True
