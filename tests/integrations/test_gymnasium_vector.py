"""Vector environments: every autoreset mode, and every class of vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.utils import seeding
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics
from hypothesis import given, settings
from hypothesis import strategies as st
from integrations.specimen import PLAYS, Play, Turn, by_env, plain, started, told
from integrations.toys import DictEnv, Scripted, by_hand

import mttp

MODES = list(AutoresetMode)
TAXI = "Taxi-v3" if gymnasium.__version__ < "1.2" else "Taxi-v4"
COUNT = 3
SEED = 11


def cart_pole() -> Any:
    """Short episodes with random starts."""
    return gymnasium.make("CartPole-v1")


def mountain_car() -> Any:
    """Continuous actions, with a time limit."""
    return gymnasium.make("MountainCarContinuous-v0", max_episode_steps=17)


def frozen_lake() -> Any:
    """Discrete observations, random transitions and short episodes."""
    return gymnasium.make("FrozenLake-v1")


def taxi() -> Any:
    """Discrete observations, and an info in each step."""
    return gymnasium.make(TAXI, max_episode_steps=13)


def blackjack() -> Any:
    """A tuple of discrete observations."""
    return gymnasium.make("Blackjack-v1")


MAKERS = [cart_pole, mountain_car, frozen_lake, taxi, blackjack, DictEnv]
by_name = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


@pytest.fixture(params=[SyncVectorEnv, partial(AsyncVectorEnv, context="fork")], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Any:
    """Return a function that creates a vector of environments."""
    return request.param


def sample(space: Any, length: int) -> list[list[Any]]:
    """Return random actions, `COUNT` for each of `length` calls."""
    space.seed(SEED)
    return [[space.sample() for _ in range(COUNT)] for _ in range(length)]


def batched(space: Any, actions: Sequence[Any]) -> Any:
    """Return one batch of single actions."""
    return concatenate(space, actions, create_empty_array(space, n=len(actions)))


def drive(vector: Any, batches: Sequence[Any], *, seed: Any = SEED) -> Iterator[Any]:
    """Reset a vector, step it with each batch, and reset by mask what has ended; return all results."""
    yield vector.reset(seed=seed)
    for batch in batches:
        result = vector.step(batch)
        yield result
        ended = np.logical_or(result[2], result[3])
        if vector.unwrapped.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            yield vector.reset(options={"reset_mask": ended})


def hand_played(
    make: Callable[[], Any], batches: Sequence[Sequence[Any]], mode: AutoresetMode
) -> list[list[Play]]:
    """Return the episodes of the same seeds and actions, one environment after the other."""
    played = []
    for index in range(COUNT):
        env = make()
        played.append(
            by_hand(
                env,
                seed=SEED + index,
                actions=[batch[index] for batch in batches],
                skips=mode is AutoresetMode.NEXT_STEP,
                read=plain,
                write=plain,
            )
        )
    return played


@by_mode
@by_name
def test_each_environment_is_recorded_as_if_played_by_hand(
    session: mttp.Session, kind: Any, make: Any, mode: AutoresetMode
) -> None:
    """
    Observations, actions, rewards, lengths and ends equal those without a vector.
    """
    vector = kind([make] * COUNT, autoreset_mode=mode)
    mttp.instrument(vector)
    actions = sample(vector.single_action_space, 30)

    for _ in drive(vector, [batched(vector.single_action_space, batch) for batch in actions]):
        pass
    vector.close()

    expected = hand_played(make, actions, mode)
    assert expected == by_env(session)
    assert sum(map(len, expected)) > COUNT
    assert {} == dict(session.stats.faults)


def bits(results: Any) -> list[Any]:
    """Return all values in nested results as bytes."""
    if isinstance(results, np.ndarray) and results.dtype != object:
        return [(results.dtype.str, results.shape, results.tobytes())]
    if isinstance(results, dict):
        return [(name, bits(value)) for name, value in results.items()]
    if isinstance(results, (list, tuple, np.ndarray)):
        return [bits(value) for value in results]
    return [(type(results), repr(results))]


@by_mode
@by_name
def test_the_caller_s_results_do_not_change(
    session: mttp.Session, kind: Any, make: Any, mode: AutoresetMode
) -> None:
    """
    All results are bit for bit the same with and without recording.
    """
    given = []
    for instrumented in (True, False):
        vector = kind([make] * COUNT, autoreset_mode=mode)
        if instrumented:
            mttp.instrument(vector)
        actions = [batched(vector.single_action_space, b) for b in sample(vector.single_action_space, 20)]
        given.append([bits(result) for result in drive(vector, actions)])
        vector.close()

    assert given[0] == given[1]


def test_a_hand_written_vector_is_recorded_as_if_played_by_hand(session: mttp.Session) -> None:
    """
    CartPoleVectorEnv's episodes equal those of CartPole environments with the same states.
    """
    vector = gymnasium.make_vec("CartPole-v1", num_envs=COUNT, max_episode_steps=15)
    assert isinstance(vector.unwrapped, CartPoleVectorEnv)
    mttp.instrument(vector)
    actions = sample(vector.single_action_space, 80)

    results = list(drive(vector, [np.array(batch) for batch in actions]))
    vector.close()

    expected = hand_played_poles(actions, limit=15)
    found = by_env(session)
    assert outlines(expected) == outlines(found)
    np.testing.assert_allclose(observations(expected), observations(found), rtol=1e-4, atol=1e-6)
    assert shown_by(results) >= {tuple(row) for row in observations(found).tolist()}


def hand_played_poles(actions: Sequence[Sequence[int]], *, limit: int) -> list[list[Play]]:
    """Step poles that start where the vector's one generator puts them, in the call after an end."""
    random, _ = seeding.np_random(SEED)
    poles = [Pole(state) for state in random.uniform(-0.05, 0.05, (4, COUNT)).T]
    for batch in actions:
        waiting = [pole for pole in poles if pole.is_over]
        for pole, action in zip(poles, batch, strict=True):
            if not pole.is_over:
                pole.step(int(action), limit)
        for pole, state in zip(waiting, random.uniform(-0.05, 0.05, (4, len(waiting))).T, strict=True):
            pole.put(state)
    return [[*pole.plays, *([pole.play()] if pole.turns else [])] for pole in poles]


class Pole:
    """One pole with a given start."""

    def __init__(self, state: Any) -> None:
        self.env = CartPoleEnv()
        self.env.reset()
        self.plays: list[Play] = []
        self.put(state)

    def put(self, state: Any) -> None:
        """Start an episode in this state."""
        self.env.state, self.env.steps_beyond_terminated = state, None
        self.turns: list[Turn] = []
        self.is_over = False

    def shown(self) -> list[float]:
        """Return the state as an observation."""
        return np.array(self.env.state, np.float32).tolist()

    def step(self, action: int, limit: int) -> None:
        """Push the cart."""
        before = self.shown()
        _, reward, terminated, *_ = self.env.step(action)
        truncated = len(self.turns) + 1 >= limit
        self.turns.append(Turn(before, action, float(reward), bool(terminated), truncated))
        self.is_over = bool(terminated or truncated)
        if self.is_over:
            self.plays.append(self.play())
            self.turns = []

    def play(self) -> Play:
        """Return the episode so far."""
        return Play(tuple(self.turns), self.shown())


def outlines(played: list[list[Play]]) -> list[Any]:
    """Return actions, rewards and ends."""
    return [
        [
            [(turn.action, turn.reward, turn.terminated, turn.truncated) for turn in play.turns]
            for play in plays
        ]
        for plays in played
    ]


def observations(played: list[list[Play]]) -> Any:
    """Return all observations as one array."""
    return np.array(
        [
            shown
            for plays in played
            for play in plays
            for shown in [*(turn.observation for turn in play.turns), play.last]
        ],
        np.float32,
    )


def shown_by(results: Sequence[Any]) -> set[tuple[float, ...]]:
    """Return every observation that the caller got."""
    return {tuple(row) for result in results for row in result[0].tolist()}


ends = st.sampled_from([(True, False), (False, True), (True, True)])
rewards = st.floats(-1e9, 1e9, allow_nan=False)


@st.composite
def scripts(draw: st.DrawFn) -> list[Play]:
    """Return plays of random length, rewards and ends, whose observations name play and turn."""
    plays = []
    for number in range(draw(st.integers(1, 3))):
        paid = draw(st.lists(rewards, min_size=1, max_size=5))
        terminated, truncated = draw(ends)
        turns = [Turn([float(number), float(at)], 0, reward) for at, reward in enumerate(paid)]
        turns[-1] = Turn(turns[-1].observation, 0, paid[-1], terminated, truncated)
        plays.append(Play(tuple(turns), [float(number), float(len(paid))]))
    return plays


@settings(deadline=None)
@given(
    plays=st.lists(scripts(), min_size=1, max_size=3),
    actions=st.lists(st.integers(0, 1), min_size=1, max_size=25),
    mode=st.sampled_from(MODES),
)
def test_random_environments_are_recorded_as_if_played_by_hand(
    plays: list[list[Play]], actions: list[int], mode: AutoresetMode
) -> None:
    """
    Each environment's episodes are its own, for random lengths, ends, rewards and modes.
    """
    makers = [partial(Scripted, each) for each in plays]
    batches = [[(action + index) % 2 for index in range(len(plays))] for action in actions]
    with mttp.configure(transport="memory://") as session:
        vector = SyncVectorEnv(makers, autoreset_mode=mode)
        mttp.instrument(vector)
        for _ in drive(vector, [np.array(batch) for batch in batches]):
            pass
        vector.close()

    played = [
        by_hand(
            make(),
            seed=0,
            actions=[batch[index] for batch in batches],
            skips=mode is AutoresetMode.NEXT_STEP,
            read=np.ndarray.tolist,
            write=int,
        )
        for index, make in enumerate(makers)
    ]
    assert [each for each in played if each] == [each for each in by_env(session) if each]
    assert {} == dict(session.stats.faults)


def scripted(mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> Any:
    """Return two environments, of which the second is one play ahead."""
    return SyncVectorEnv([Scripted, partial(Scripted, PLAYS[::-1], **options)], autoreset_mode=mode)


def test_each_episode_says_where_it_is_from(session: mttp.Session) -> None:
    """
    It has the environment's index, the vector's class, and the wrappers from the outside in.
    """
    vector = RecordEpisodeStatistics(gymnasium.make_vec("CartPole-v1", 2, "sync"))
    mttp.instrument(vector, policy="p")
    vector.reset(seed=5)

    vector.step(np.array([0, 1]))
    vector.close()

    first, second = started(session)
    assert [(0, 5), (1, 6)] == [(episode.env_index, episode.seed) for episode in (first, second)]
    assert ("CartPole-v1", "1", "p", {}) == (first.env, first.env_version, first.policy, first.env_kwargs)
    names = ("RecordEpisodeStatistics", "SyncVectorEnv", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker")
    assert names == first.env_wrappers
    assert {"vector_env": "SyncVectorEnv", "num_envs": 2, "autoreset_mode": "NextStep"} == first.metadata
    assert [4] == first.env_spaces["observation"]["shape"]


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_the_same_environment_in_every_vector(session: mttp.Session, mode: str) -> None:
    """
    Id, version and spaces do not depend on the vector's class.
    """
    options = {"vector_kwargs": {"context": "fork"}} if mode == "async" else {}
    vector = gymnasium.make_vec("CartPole-v1", 2, mode, **options)
    mttp.instrument(vector)
    vector.reset(seed=1)

    vector.step(np.array([0, 1]))
    vector.close()

    for episode in started(session):
        assert ("CartPole-v1", "1") == (episode.env, episode.env_version)
        assert {"type": "Discrete", "n": 2, "start": 0} == episode.env_spaces["action"]


def test_seeds_as_they_are_given(session: mttp.Session) -> None:
    """
    A list of seeds has one per environment; None leaves a digest of the generator's state.
    """
    vector = SyncVectorEnv([cart_pole] * 2)
    mttp.instrument(vector)
    vector.reset(seed=[7, 8])

    vector.reset(seed=[9, None])
    vector.step(np.array([0, 1]))
    vector.close()

    first, second = started(session)
    assert (9, None) == (first.seed, first.env_rng_sha256)
    assert (None, 64) == (second.seed, len(second.env_rng_sha256 or ""))


def test_an_autoreset_leaves_a_digest(session: mttp.Session) -> None:
    """
    After NEXT_STEP's own reset the seed is unknown, and the digest of the generator's state is recorded.
    """
    vector = SyncVectorEnv([cart_pole])
    mttp.instrument(vector)

    for _ in drive(vector, [np.array([1])] * 25):
        pass
    vector.close()

    first, *others = started(session)
    assert (SEED, None) == (first.seed, first.env_rng_sha256)
    assert others
    assert all(other.seed is None and len(other.env_rng_sha256 or "") == 64 for other in others)


def test_one_generator_for_all_environments(session: mttp.Session) -> None:
    """
    The seed of such a vector is metadata, and its environments have none.
    """
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    mttp.instrument(vector, metadata={"mine": 1})

    for _ in drive(vector, [np.array([1, 1])] * 25, seed=3):
        pass
    vector.close()

    first, second, *others = started(session)
    assert [(None, 3), (None, 3)] == [(e.seed, e.metadata["vector_seed"]) for e in (first, second)]
    assert all("vector_seed" not in other.metadata and other.env_rng_sha256 for other in others)
    assert {"CartPoleVectorEnv"} == {e.metadata["vector_env"] for e in (first, second, *others)}
    assert {1} == {e.metadata["mine"] for e in (first, second, *others)}


def test_a_partial_reset_ends_only_what_it_names(session: mttp.Session) -> None:
    """
    The other episodes continue with their own observations.
    """
    vector = scripted(AutoresetMode.DISABLED)
    mttp.instrument(vector)
    vector.reset()

    vector.step(np.array([1, 0]))
    vector.reset(options={"reset_mask": np.array([True, False])})
    vector.step(np.array([0, 0]))
    vector.close()

    cut, whole, again = started(session)
    assert ("reset", 0, 1) == (cut.stop_reason, cut.env_index, cut.length)
    assert (PLAYS[1], 1) == (told(whole), whole.env_index)
    assert ("closed", 0, [1.0, 0.0]) == (again.stop_reason, again.env_index, told(again).turns[0].observation)


def test_partial_resets_take_seeds(session: mttp.Session) -> None:
    """
    A masked reset seeds the environments in the mask only.
    """
    vector = SyncVectorEnv([cart_pole] * 2, autoreset_mode=AutoresetMode.DISABLED)
    mttp.instrument(vector)
    vector.reset(seed=1)

    vector.reset(seed=[5, None], options={"reset_mask": np.array([True, False])})
    vector.step(np.array([0, 0]))
    vector.close()

    assert [5, 2] == [episode.seed for episode in started(session)]


def test_a_full_reset_aborts_every_episode(session: mttp.Session) -> None:
    """
    Also in a vector that resets automatically.
    """
    vector = scripted()
    mttp.instrument(vector)
    vector.reset()

    vector.step(np.array([1, 0]))
    vector.reset()
    vector.close()

    assert ["reset", "reset"] == [episode.stop_reason for episode in started(session)]


def test_the_same_step_mode_shows_the_true_end(session: mttp.Session) -> None:
    """
    Last observation and outcome are those of the end, not of the next episode's start.
    """
    infos = ({}, {"is_success": True, "reward_end": 2.0})
    vector = scripted(AutoresetMode.SAME_STEP, infos=infos)
    mttp.instrument(vector)
    vector.reset()

    vector.step(np.array([1, 0]))
    vector.step(np.array([0, 0]))
    vector.step(np.array([1, 1]))
    vector.close()

    found = {(e.env_index, e.status): e for e in started(session)}
    ended = found[1, "completed"]
    assert (PLAYS[1], "success") == (told(ended), ended.outcome)
    assert {"end": 2.0} == ended.steps[-1].rewards[0].components
    assert PLAYS[0] == told(found[0, "completed"])
    begun = found[1, "aborted"]
    assert [0.0, 0.0] == told(begun).turns[0].observation
    assert (None, None) == (begun.seed, begun.env_rng_sha256)


@by_mode
def test_infos_are_kept_apart(session: mttp.Session, kind: Any, mode: AutoresetMode) -> None:
    """
    Each environment has its own components and outcome, out of the common infos.
    """
    infos = ({"reward_x": 1.5}, {"rewards": {"y": 2.0}, "success": False})
    plays = (Play((Turn([0.0, 0.0], 0, 1.5), Turn([0.0, 1.0], 0, 2.0, terminated=True)), [0.0, 2.0]),)
    vector = kind([partial(Scripted, plays), partial(Scripted, plays, infos)], autoreset_mode=mode)
    mttp.instrument(vector)

    for _ in drive(vector, [np.array([0, 0])] * 2):
        pass
    vector.close()

    silent, telling = started(session)
    assert ((), (), "unknown") == (*(step.rewards for step in silent.steps), silent.outcome)
    assert [{"x": 1.5}, {"y": 2.0}] == [step.rewards[0].components for step in telling.steps]
    assert "failure" == telling.outcome


def test_infos_as_lists(session: mttp.Session) -> None:
    """
    DictInfoToList's infos give the same results.
    """
    infos = ({}, {"is_success": True})
    vector = DictInfoToList(scripted(infos=infos))
    mttp.instrument(vector)
    vector.reset()

    vector.step(np.array([1, 0]))
    vector.step(np.array([0, 0]))
    vector.close()

    assert ["unknown", "success"] == [episode.outcome for episode in started(session)]


def test_an_error_ends_every_step_that_was_taken(session: mttp.Session) -> None:
    """
    All open steps end in error, because the environment that raised is unknown; a reset starts new episodes.
    """

    class Failing(Scripted):
        def step(self, action: Any) -> Any:
            if self.at == 1:
                raise ValueError("the simulator died")
            return super().step(action)

    vector = SyncVectorEnv([Scripted, Failing])
    mttp.instrument(vector)
    vector.reset()
    vector.step(np.array([1, 0]))

    with pytest.raises(ValueError, match="died"):
        vector.step(np.array([0, 1]))
    vector.reset()
    vector.step(np.array([0, 0]))
    vector.close()

    assert [("error", 2), ("error", 2), ("aborted", 1), ("aborted", 1)] == [
        (episode.status, episode.length) for episode in started(session)
    ]


def test_stepping_on_without_a_reset_is_counted(session: mttp.Session) -> None:
    """
    In DISABLED mode an environment that was not reset is not recorded; the others are.
    """

    class Enduring(Scripted):
        def step(self, action: Any) -> Any:
            self.at = min(self.at, 1)
            return super().step(action)

    vector = AsyncVectorEnv(
        [Scripted, partial(Enduring, PLAYS[1:])], autoreset_mode=AutoresetMode.DISABLED, context="fork"
    )
    mttp.instrument(vector)
    vector.reset()

    for _ in range(3):
        vector.step(np.array([1, 0]))
    vector.close()

    assert [3, 2] == [e.length for e in started(session)]
    assert {"step_after_end": 1} == dict(session.stats.faults)


def test_a_vector_instrumented_in_mid_episode(session: mttp.Session) -> None:
    """
    Each environment is recorded from its next reset on.
    """
    vector = scripted()
    vector.reset()
    vector.step(np.array([1, 0]))
    mttp.instrument(vector)

    for batch in ([0, 0], [1, 77], [77, 1], [0, 0]):
        vector.step(np.array(batch) % 2)
    vector.close()

    found = started(session)
    assert [(1, 2), (0, 1)] == [(episode.env_index, episode.length) for episode in found]
    assert [0.0, 0.0] == told(found[0]).turns[0].observation


def test_the_outer_layer_wins_over_environments_in_the_vector(session: mttp.Session) -> None:
    """
    Instrumented environments do not record while their vector is recorded.
    """
    inner = [Scripted(), Scripted()]
    for env in inner:
        mttp.instrument(env, policy="inner")
    vector = SyncVectorEnv([lambda: inner[0], lambda: inner[1]])

    vector.reset()
    vector.step(np.array([1, 0]))
    handle = mttp.instrument(vector, policy="outer")
    vector.reset()
    vector.step(np.array([1, 0]))
    handle.detach()
    vector.step(np.array([0, 0]))
    vector.reset()
    vector.step(np.array([0, 0]))
    vector.close()

    told_by = [(e.policy, e.stop_reason, e.env_index) for e in started(session)]
    assert [
        ("inner", "detached", None),
        ("inner", "detached", None),
        ("outer", "detached", 0),
        ("outer", "detached", 1),
        ("inner", "closed", None),
        ("inner", "closed", None),
    ] == told_by


def test_both_halves_of_an_async_step(session: mttp.Session) -> None:
    """
    `step_async` and `step_wait` are one step, and `reset_async` and `reset_wait` one reset.
    """
    vector = AsyncVectorEnv([Scripted, Scripted], context="fork")
    handle = mttp.instrument(vector)

    vector.reset_async(seed=4)
    vector.reset_wait()
    for action in (1, 0, 1):
        vector.step_async(np.array([action, action]))
        vector.step_wait()
    vector.close()

    assert all(handle.status()[half] for half in ("step_async", "step_wait", "reset_async", "reset_wait"))
    assert [[PLAYS[0]], [PLAYS[0]]] == by_env(session)
    assert [4, 5] == [episode.seed for episode in started(session)]


def test_a_vector_that_is_busy(session: mttp.Session) -> None:
    """
    Gymnasium refuses calls between the halves of a step, and the step continues.
    """
    vector = AsyncVectorEnv([Scripted], context="fork")
    vector.reset()
    vector.step_async(np.array([1]))

    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        mttp.instrument(vector)
    _, paid, *_ = vector.step_wait()

    assert ([0.5], False) == (paid.tolist(), "step" in vars(vector))
    vector.close()


def test_detaching_while_the_vector_is_busy(session: mttp.Session) -> None:
    """
    The step continues, and its episode is aborted.
    """
    vector = AsyncVectorEnv([Scripted], context="fork")
    handle = mttp.instrument(vector)
    vector.reset()
    vector.step_async(np.array([1]))

    handle.detach()
    _, paid, *_ = vector.step_wait()
    vector.close()

    (episode,) = mttp.read(session)
    assert ([0.5], "aborted", "detached") == (paid.tolist(), episode.status, episode.stop_reason)


def test_a_vector_that_does_not_state_its_mode(session: mttp.Session) -> None:
    """
    The mode is NEXT_STEP, as in Gymnasium.
    """
    vector = scripted()
    del vector.metadata["autoreset_mode"]
    vector.autoreset_mode, mode = None, vector.autoreset_mode
    mttp.instrument(vector)
    vector.autoreset_mode = mode
    vector.metadata["autoreset_mode"] = mode

    for _ in drive(vector, [np.array([0, 0])] * 4):
        pass
    vector.close()

    assert [3, 2, 1] == [episode.length for episode in started(session)]


def test_iterate_is_not_needed(session: mttp.Session) -> None:
    """
    A batch of a space that Gymnasium cannot split is split by index.
    """

    class Words(spaces.Space[Any]):
        pass

    class Speaking(gymnasium.vector.VectorEnv[Any, Any, Any]):
        num_envs = 2
        metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        observation_space = single_observation_space = Words()
        action_space = single_action_space = Words()

        def reset(self, **_: Any) -> Any:
            return ("hello", "goodbye"), {}

        def step(self, actions: Any) -> Any:
            return actions, np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}

    with pytest.raises(Exception, match="Words"):
        iterate(Words(), ())
    vector = Speaking()
    mttp.instrument(vector)

    vector.reset()
    vector.step(("a", "b"))
    vector.close()

    assert [("hello", "a"), ("goodbye", "b")] == [
        (episode.steps[0].observation, episode.steps[0].action) for episode in started(session)
    ]
