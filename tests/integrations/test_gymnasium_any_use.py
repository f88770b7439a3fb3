"""Random uses of an environment: buffered steps read like spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mttp
from mttp.recording import configuration
from mttp.testing import assert_same

gymnasium = pytest.importorskip("gymnasium")

SHOWN: Mapping[str, Callable[[int], Any]] = {
    "usual": lambda number: np.full(2, number, np.float32),
    "double": lambda number: np.full(2, number, np.float64),
    "longer": lambda number: np.full(3, number, np.float32),
    "of no dimension": lambda number: np.array(float(number)),
    "int": int,
    "int64": np.int64,
    "huge": lambda number: 2**63 + number,
    "text": str,
    "object": lambda number: slice(number),
    "nothing": lambda _: None,
}


class Reset(NamedTuple):
    """A reset, and the environment's behaviour in it."""

    seed: int | None
    shown: str
    what: str


class Step(NamedTuple):
    """A step, and the environment's behaviour in it."""

    action: int
    shown: str
    ends: tuple[bool, bool]
    what: str


class Act(NamedTuple):
    """Any other use."""

    what: str


class Told(gymnasium.Env):  # type: ignore[type-arg]
    """An environment that follows a script."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.plan: Any = None
        self._count = 0
        self._np_random = np.random.Generator(np.random.PCG64(3))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Reset."""
        super().reset(seed=seed, options=options)
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        """Step."""
        shown, what = self._shown(), self.plan.what
        reward = float("nan") if what == "pays NaN" else self._count / 2
        return shown, reward, *self.plan.ends, _INFOS.get(what, {})

    def _shown(self) -> Any:
        self._count += 1
        _DOES.get(self.plan.what, lambda _: None)(self)
        return SHOWN[self.plan.shown](self._count)

    @property
    def count(self) -> int:
        """The number of calls so far."""
        return self._count


def _raise(_: Told) -> None:
    raise RuntimeError("broken")


def _play_inside(_: Told) -> None:
    with mttp.episode(env="inside") as episode, episode.step() as step:
        step.reward(2.0)


_INFOS: Mapping[str, dict[str, Any]] = {"components": {"reward_x": 1.0}, "success": {"success": True}}
_DOES: Mapping[str, Callable[[Told], Any]] = {
    "asks for the episode": lambda env: mttp.current_episode().metric(f"at_{env.count}", 1),
    "asks for the step": lambda env: mttp.current_step().metric("count", env.count),
    "draws": lambda env: env.np_random.random(),
    "raises": _raise,
    "plays inside": _play_inside,
}
_OPTIONS = [{"policy": "other"}, {"observations": False}, {"max_bytes": 4}]


def sometimes(*unusual: str) -> st.SearchStrategy[str]:
    """Return a strategy that yields one of these now and then."""
    return st.sampled_from([*[""] * 2 * len(unusual), *unusual])


KINDS = st.just("usual") | st.sampled_from(list(SHOWN)) | st.just("usual")
SEEDS = st.none() | st.integers(0, 5)
RESETS = st.builds(Reset, SEEDS, KINDS, sometimes("asks for the episode", "raises", "draws"))
GOES_ON, ENDS, IS_CUT = (False, False), (True, False), (False, True)
STEPS = st.builds(
    Step,
    st.integers(0, 1),
    KINDS,
    st.sampled_from([GOES_ON, GOES_ON, ENDS, IS_CUT]),
    sometimes(*_DOES, *_INFOS, "pays NaN"),
)
EPISODES = st.tuples(
    st.builds(Reset, SEEDS, KINDS, st.just("")),
    st.builds(Step, st.just(1), KINDS, st.just(GOES_ON), st.just("")),
    st.builds(Step, st.just(0), KINDS, st.just(ENDS), st.just("")),
)
ACTS = st.builds(Act, st.sampled_from(["flush", "close", "0", "1", "2"]))
AROUND = st.sampled_from([*[""] * 9, "an episode", "a step"])
USES = st.lists(st.tuples(st.one_of(RESETS, STEPS, STEPS, EPISODES, EPISODES, ACTS), AROUND), max_size=14)


def recorded(steps: str, uses: Sequence[tuple[Any, str]], *, in_place: bool) -> tuple[list[Any], Any]:
    """Return the recorded episodes and the session's faults."""
    with mttp.configure("memory://", run_id="run", steps=steps) as session:
        told = Told()
        env = mttp.wrap(told) if not in_place else told
        if in_place:
            mttp.instrument(env)
        for use, around in uses:
            with ExitStack() as stack, suppress(RuntimeError):
                if around:
                    episode = stack.enter_context(mttp.episode(env="around"))
                    _ = stack.enter_context(episode.step()) if around == "a step" else None
                for one in use if type(use) is tuple else [use]:
                    _do(one, told, env, session, in_place=in_place)
    found, stats = mttp.read(session), session.stats
    configuration.forget()
    return list(found.episodes), (
        stats.episodes,
        stats.steps,
        stats.faults,
        stats.lost,
        [one.kind for one in found.problems],
    )


def _do(one: Any, told: Told, env: Any, session: mttp.Session, *, in_place: bool) -> None:
    told.plan = one
    if isinstance(one, Reset):
        env.reset(seed=one.seed)
    elif isinstance(one, Step):
        env.step(one.action)
    elif one.what == "flush":
        session.flush()
    elif one.what == "close":
        env.close()
    elif in_place:
        mttp.instrument(env, **_OPTIONS[int(one.what)])


OBJECT_THEN_OPTIONS = [
    (Reset(0, "usual", ""), ""),
    (Step(0, "object", (False, False), ""), ""),
    (Act("0"), ""),
    (Step(0, "usual", (True, False), ""), ""),
]


@given(USES, st.booleans())
@example(OBJECT_THEN_OPTIONS, True)
@settings(deadline=None)
def test_packed_steps_are_those_of_spans_whatever_is_done(
    uses: list[tuple[Any, str]], in_place: bool
) -> None:
    """
    With resets in the middle and twice, steps after the end, errors, current steps, changed options and outer
    episodes.
    """
    apart, counted = recorded("spans", uses, in_place=in_place)
    packed, also = recorded("packed", uses, in_place=in_place)

    assert counted == also
    assert len(apart) == len(packed)
    for expected, actual in zip(apart, packed, strict=True):
        assert_same(expected, actual, ignore=["trace_id", "id", "span_count"])
