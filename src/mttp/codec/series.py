"""
Episodes of one environment that were each handed on as a whole, with nothing unusual about any of them.

What they have in common is said once, and what differs in columns: of the episodes, and of all their steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mttp.codec import blocks, content, episodes, transitions
from mttp.codec.generators import sha256
from mttp.codec.plain import Plain
from mttp.codec.profiles import packed
from mttp.codec.stretches import Said
from mttp.codec.transitions import Form
from mttp.semconv import attributes as a

__all__ = ["Episode", "Group", "Series", "Whole", "root", "roots", "steps", "told", "words"]


class Episode(NamedTuple):
    """What is said of one episode, but for its steps and what all of its environment say."""

    trace_id: int
    root_id: int
    steps_id: int
    """The span of its steps."""
    start_time: int
    end_time: int
    begun: int
    """When its first step did."""
    place: int
    """Its index in its session."""
    seed: int | None
    generator: Any
    """The state of the environment's generator at its start, the digest of that, or None."""
    outcome: str
    terminated: bool
    truncated: bool
    final: Any
    """The last observation: a number of Python's, of an array its elements; None where it is not recorded."""
    length: int
    """How many steps it had."""

    @property
    def id(self) -> str:
        """The episode's own id, that of its trace."""
        return f"{self.trace_id:032x}"

    @property
    def digest(self) -> str | None:
        """What is said of the generator's state."""
        return sha256(self.generator) if isinstance(self.generator, dict) else self.generator


class Whole(NamedTuple):
    """One episode, as its process has it."""

    said: Mapping[str, Any]
    """What all episodes of its environment say."""
    form: Form
    """What the rows hold."""
    parts: tuple[Any, ...]
    """What `Episode` has."""
    rows: Sequence[tuple[Any, ...]]
    """Its steps."""


class Series(NamedTuple):
    """Episodes of one environment, as they travel."""

    said: Mapping[str, Any]
    """What all of them say."""
    form: tuple[Any, ...]
    """What their observations are: `Form.parts`."""
    parts: Sequence[tuple[Any, ...]]
    """Of each what `Episode` has."""
    columns: tuple[bytes | Sequence[Any], Sequence[Any], Sequence[float], Sequence[int]]
    """Observations, arrays' as bytes, actions, what was paid, and the ends of the steps of all."""

    def cut(
        self, start: int, end: int
    ) -> tuple[Sequence[Any], Sequence[Any], Sequence[float], Sequence[int]]:
        """Those of the steps between two places."""
        shown, actions, paid, ends = self.columns
        if isinstance(shown, bytes):
            width = len(shown) // len(ends)
            shown = [shown[place * width : (place + 1) * width] for place in range(start, end)]
        else:
            shown = shown[start:end]
        return shown, actions[start:end], paid[start:end], ends[start:end]


Group: TypeAlias = tuple[Sequence[int], Said, Sequence[Sequence[Any]]]
"""
Spans that say the same but for some values: whose they are, by place in the series, and what they say.

A type stands for each value that differs; those of each come in a column.
"""

_LARGEST = 1e300
"""Sums of more than that may be beyond a float."""


def told(wholes: Sequence[Whole]) -> Series | None:
    """Episodes of one environment and form as a series; None where anything about them is unusual."""
    said, form = wholes[0][:2]
    if form.max_bytes is None or form.max_bytes < content.NUMBER_BYTES:
        return None
    rows = chain.from_iterable([whole.rows for whole in wholes])
    facts = list(chain.from_iterable(rows))  # in one go: each row has to come from memory
    width = len(wholes[0].rows[0])
    observations, actions, rewards, ends = (facts[place::width] for place in (0, 1, 2, width - 1))
    shown = b"".join(observations) if form.dtype is not None else transitions.scalars(observations)
    done, paid = transitions.scalars(actions), transitions.paid(rewards)
    if shown is None or done is None or paid is None or sum(map(abs, paid)) > _LARGEST:
        return None
    return Series(said, form.parts, [whole.parts for whole in wholes], (shown, done, paid, ends))


def words(series: Series) -> Iterator[tuple[Episode, dict[str, Plain], dict[str, Plain]]]:
    """Each episode, what the span of its steps says, and what its root does."""
    first = 0
    for parts in series.parts:
        episode = Episode(*parts)
        yield episode, *_words(series, episode, *series.cut(first, first + episode.length))
        first += episode.length


def _words(
    series: Series, episode: Episode, observations: Any, actions: Any, paid: Any, ends: Any
) -> tuple[dict[str, Plain], dict[str, Plain]]:
    known = {a.RUN_ID: series.said[a.RUN_ID], a.EPISODE_ID: episode.id}
    before = [False] * (episode.length - 1)
    flags = [*before, episode.terminated], [*before, episode.truncated]
    facts = (observations, actions, paid, *flags)
    said = transitions.said(0, episode.begun, series.form, facts, ends)
    total = episodes.total(paid)
    return {**known, **said}, root(series.said, series.form, episode, (total, total, "steps"))


def root(
    said: Mapping[str, Any],
    form: Sequence[Any],
    episode: Episode,
    paid: tuple[float | None, float | None, str | None],
) -> dict[str, Plain]:
    """What an episode's root says, which was paid so much in all and by its steps, and by which of both."""
    found: dict[str, Plain] = {**said, a.EPISODE_ID: episode.id, a.EPISODE_INDEX: episode.place}
    if episode.seed is not None:
        found[a.ENV_SEED] = str(episode.seed)
    if episode.generator is not None:
        found[a.ENV_RNG_SHA256] = episode.digest
    facts: dict[str, Any] = {"status": "completed", "outcome": episode.outcome, "length": episode.length}
    facts |= {"terminated": episode.terminated, "truncated": episode.truncated}
    facts["return_"], facts["step_reward_sum"], basis = paid
    found |= episodes.ending(facts, [], return_basis=basis, step_count=episode.length, span_count=2)
    dtype, shape, max_bytes = form
    final = episode.final
    if dtype is not None and final is not None:
        final = np.frombuffer(final, dtype).reshape(shape)
    return found | content.encode(content.FINAL_OBSERVATION, final, [], [], max_bytes=max_bytes)


# Written together.


def steps(series: Series, found: Sequence[Episode]) -> Iterator[Group]:
    """What the spans of the episodes' steps say, arrays packed."""
    observations, actions, paid, ends = series.columns
    bounds = [0, *accumulate([episode.length for episode in found])]
    spans = list(pairwise(bounds))
    ended = np.array(ends, np.int64)
    started = np.concatenate((ended[:1], ended[:-1]))
    started[bounds[:-1]] = [episode.begun for episode in found]
    shown, of_shown = _contents(observations, bounds)
    done, of_done = _contents(actions, bounds)
    columns: dict[str, Sequence[Any]] = {
        a.EPISODE_ID: [episode.id for episode in found],
        a.STEPS_COUNT: [episode.length for episode in found],
        a.STEPS_START_TIMES: _cut(started, bounds),
        a.STEPS_END_TIMES: _cut(ended, bounds),
        a.STEPS_REWARD_SUM: [math.fsum(paid[start:end]) for start, end in spans],
        _column(a.OBSERVATION_VALUE): shown,
        _column(a.ACTION_VALUE): done,
        _column(a.STEP_REWARD): _cut(np.array(paid, np.float64), bounds),
        _column(a.STEP_TERMINATED): _at_the_end([episode.terminated for episode in found], bounds),
        _column(a.STEP_TRUNCATED): _at_the_end([episode.truncated for episode in found], bounds),
    }

    def example(place: int) -> dict[str, Plain]:
        start, end = spans[place]
        return packed(_words(series, found[place], *series.cut(start, end))[0])

    return _grouped(list(zip(of_shown, of_done, strict=True)), columns, example)


def roots(series: Series, found: Sequence[Episode]) -> Iterator[Group]:
    """What the episodes' roots say, arrays packed."""
    bounds = accumulate([episode.length for episode in found], initial=0)
    totals = [math.fsum(series.columns[2][start:end]) for start, end in pairwise(bounds)]
    counts = [episode.length for episode in found]
    columns: dict[str, Sequence[Any]] = {
        a.EPISODE_ID: [episode.id for episode in found],
        a.EPISODE_INDEX: [episode.place for episode in found],
        a.ENV_SEED: [str(episode.seed) for episode in found],
        a.ENV_RNG_SHA256: [episode.digest for episode in found],
        a.EPISODE_OUTCOME: [episode.outcome for episode in found],
        a.EPISODE_LENGTH: counts,
        a.EPISODE_STEP_COUNT: counts,
        a.EPISODE_TERMINATED: [episode.terminated for episode in found],
        a.EPISODE_TRUNCATED: [episode.truncated for episode in found],
        a.EPISODE_RETURN: totals,
        a.EPISODE_STEP_REWARD_SUM: totals,
        a.EPISODE_FINAL_OBSERVATION_VALUE: [episode.final for episode in found],
    }
    keys = [(episode.seed is None, episode.generator is None, type(episode.final)) for episode in found]

    def example(place: int) -> dict[str, Plain]:
        return packed(root(series.said, series.form, found[place], (totals[place], totals[place], "steps")))

    return _grouped(keys, columns, example)


def _grouped(
    keys: Sequence[object], columns: Mapping[str, Sequence[Any]], example: Callable[[int], dict[str, Plain]]
) -> Iterator[Group]:
    """Those of one key together; `example` is all that one of them says."""
    groups: dict[object, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        groups[key].append(place)
    for places in groups.values():
        said = [(key, value, columns.get(key)) for key, value in example(places[0]).items()]
        yield (
            places,
            tuple([(key, _fixed(value) if column is None else type(value)) for key, value, column in said]),
            [[column[place] for place in places] for _, _, column in said if column is not None],
        )


def _fixed(value: Plain) -> Plain:
    """The same for each: a list as something that stays as it is."""
    return tuple(value) if isinstance(value, list) else value


def _column(key: str) -> str:
    return f"{a.STEPS_COLUMN}.{key}"


def _cut(array: Any, bounds: Sequence[int]) -> list[bytes]:
    """An array's parts between bounds, as little-endian bytes."""
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _pieces(data, array.itemsize, bounds)


def _pieces(data: bytes, size: int, bounds: Sequence[int]) -> list[bytes]:
    """Likewise of elements of so many bytes."""
    return [data[start * size : end * size] for start, end in pairwise(bounds)]


def _at_the_end(flags: Sequence[bool], bounds: Sequence[int]) -> list[bytes]:
    """Flags of the last in each part, and false for all others, likewise."""
    listed = np.zeros(bounds[-1], np.bool_)
    listed[np.array(bounds[1:]) - 1] = flags
    return _cut(listed, bounds)


def _contents(values: bytes | Sequence[Any], bounds: Sequence[int]) -> tuple[list[bytes], list[Any]]:
    """
    Observations or actions, likewise, and the type of each part's.

    Whole numbers are in the narrowest type that holds a part; what is not stated is nothing.
    """
    if isinstance(values, bytes):
        return _pieces(values, len(values) // bounds[-1], bounds), [bytes] * (len(bounds) - 1)
    if values[0] is None:
        return [b""] * (len(bounds) - 1), [None] * (len(bounds) - 1)
    array = np.array(values)
    if array.dtype.kind != "i":
        return _cut(array, bounds), [array.dtype] * (len(bounds) - 1)
    lows, highs = (find.reduceat(array, bounds[:-1]).tolist() for find in (np.minimum, np.maximum))
    kinds = [blocks.narrowest(low, high, array.dtype) for low, high in zip(lows, highs, strict=True)]
    cuts = {kind: _cut(array.astype(kind), bounds) for kind in set(kinds)}
    return [cuts[kind][place] for place, kind in enumerate(kinds)], kinds
