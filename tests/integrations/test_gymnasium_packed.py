"""Buffered steps in columns: they read like steps with spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

import mttp
from mttp.model.figures import EpisodeFigures
from mttp.model.gradings import GraderHealth
from mttp.otlp.json import encode_records
from mttp.reading import parquet
from mttp.recording import configuration
from mttp.semconv import attributes as a
from mttp.tables.figures import figures_of_values, read_figures
from mttp.tables.summary import Summary
from mttp.testing import OtlpReceiver, assert_same

gymnasium = pytest.importorskip("gymnasium")

OTHERWISE = ["trace_id", "id", "span_count"]


class Asking(gymnasium.RewardWrapper):
    """Records a value that columns do not hold on every third step, and a metric on every fifth."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.count = 0

    def reward(self, reward: Any) -> Any:
        """Use the current step."""
        self.count += 1
        if self.count % 3 == 0:
            mttp.current_step().tool_call("look").end()
        if self.count % 5 == 0:
            mttp.current_step().metric("raw", reward)
        return reward / 2


class Telling(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Returns reward components now and then, and rewards that are not numbers."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.count = 0

    def step(self, action: Any) -> Any:
        """Step with an info."""
        observation, reward, *rest, info = self.env.step(action)
        self.count += 1
        info = {**info, "reward_bonus": 0.5} if self.count % 4 == 0 else {**info, "other": 1}
        return observation, float("nan") if self.count % 7 == 0 else reward, *rest, info


class Paying(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Returns infos that depend on the number of the step."""

    def __init__(self, env: Any, infos: Callable[[int], dict[Any, Any]]) -> None:
        super().__init__(env)
        self.infos, self.count = infos, 0

    def step(self, action: Any) -> Any:
        """Step with the next info."""
        self.count += 1
        *result, _ = self.env.step(action)
        return *result, self.infos(self.count)


def constant_components(number: int) -> dict[Any, Any]:
    """Return components whose names are those of every step."""
    return {
        "x_position": number / 7,
        "reward_forward": number / 7,
        "reward_ctrl": np.float32(-0.1) * number,
        "reward_No Fall": 1,
        "rewards": {"alive": np.array(0.5)},
    }


AWKWARD: list[dict[Any, Any]] = [
    {},
    {"reward_forward": 0.5},
    {"reward_forward": -0.5, "reward_x": 1.0},
    {"reward_forward": float("nan"), "reward_ctrl": 1.0},
    {"reward_forward": float("inf")},
    {"reward_forward": "much", "reward_ctrl": -1.0, "reward_x": None},
    {"reward_forward": 10**400},
    {"reward_a b": 1.0},
    {"reward_a_b": 2.0},
    {"reward_a b": 1.0, "reward_a_b": 2.0},
    {"rewards": {1: 1.0, "": 2.0, "ä\ud800": 3.0}},
    {f"reward_{number}": number / 2 for number in range(40)},
    {"rewards": [1.0], "reward_": 1.0, "reward_forward": True},
]


def awkward_components(number: int) -> dict[Any, Any]:
    """Return components that appear in some steps, that are no numbers, that collide, and that are many."""
    return AWKWARD[number % len(AWKWARD)]


def new_components(number: int) -> dict[Any, Any]:
    """Return a component with another name in every step."""
    return {f"reward_{number}": 0.5}


class Shifting(gymnasium.ObservationWrapper):  # type: ignore[type-arg]
    """Returns arrays of varying types."""

    count = 0

    def observation(self, observation: Any) -> Any:
        """Every fourth is another."""
        self.count += 1
        return observation.astype(np.float64) if self.count % 4 == 0 else observation


class Reusing(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Returns rewards and ends in arrays of its own that it overwrites."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.paid, self.over = np.zeros(()), np.zeros((2,), bool)

    def step(self, action: Any) -> Any:
        """Step with the same arrays."""
        observation, _, *self.over[:], info = self.env.step(action)
        self.paid += 1
        return observation, self.paid, *self.over.reshape(2, 1), info


class Single(gymnasium.ObservationWrapper):  # type: ignore[type-arg]
    """Returns an array without dimensions."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (), np.float64)

    def observation(self, observation: Any) -> Any:
        """Its first number."""
        return np.array(observation[0], np.float64)


def cart_pole() -> Any:
    """Return an environment with arrays and integers."""
    return gymnasium.make("CartPole-v1")


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "arrays": cart_pole,
    "integers": lambda: gymnasium.make("FrozenLake-v1"),
    "tuples": lambda: gymnasium.make("Blackjack-v1"),
    "continuous": lambda: gymnasium.make("Pendulum-v1"),
    "asking": lambda: Asking(cart_pole()),
    "telling": lambda: Telling(cart_pole()),
    "components": lambda: Paying(cart_pole(), constant_components),
    "awkward components": lambda: Paying(Telling(cart_pole()), awkward_components),
    "new components": lambda: Paying(cart_pole(), new_components),
    "shifting": lambda: Shifting(cart_pole()),
    "reusing": lambda: Reusing(cart_pole()),
    "single": lambda: Single(cart_pole()),
}


def played(
    steps: str, make: Callable[[], Any], *, count: int = 60, address: str = "memory://", **options: Any
) -> mttp.Recording:
    """Return the recording of an environment that was stepped so many times and left in mid-episode."""
    with mttp.configure(transport=address, run_id="run", steps=steps) as session:
        env = mttp.wrap(make(), **options)
        env.action_space.seed(1)
        env.reset(seed=1)
        for number in range(count):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated or number == count // 2:
                env.reset(seed=number)
        env.close()
    assert count == session.stats.steps
    found = mttp.read(session if session.location is None else session.location)
    configuration.forget()
    return found


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize(
    "options", [{}, {"observations": False}, {"actions": False}, {"max_bytes": 8}], ids=str
)
def test_packed_steps_are_those_of_spans(name: str, options: dict[str, Any]) -> None:
    """
    For every environment: observations, actions, rewards, ends, faults, components and recorded values.
    """
    apart, packed = (played(steps, ENVIRONMENTS[name], **options).episodes for steps in ("spans", "packed"))

    assert len(apart) == len(packed)
    for expected, actual in zip(apart, packed, strict=True):
        assert_same(expected, actual, ignore=OTHERWISE)


@pytest.mark.parametrize("name", ["components", "awkward components", "new components", "telling"])
@pytest.mark.parametrize("steps", ["spans", "packed", "auto"])
def test_components_of_steps_are_those_of_scorings(
    name: str, steps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Attributes and columns of steps read like a scoring's span below each step; figures and summaries agree.
    """
    address = f"file://{tmp_path}/{{}}.jsonl"
    own = played(steps, ENVIRONMENTS[name], count=120, address=address.format("own"))
    monkeypatch.setattr("mttp.codec.rewards.scores", lambda *_: None)
    apart = played(steps, ENVIRONMENTS[name], count=120, address=address.format("apart"))

    for expected, actual in zip(apart, own, strict=True):
        assert_same(expected, actual, ignore=OTHERWISE)
    wanted = [(one.components, one.component_statuses) for one in figures(tmp_path / "apart.jsonl")]
    parquet.write(tmp_path / "own.parquet", mttp.scan(tmp_path / "own.jsonl", arrays=True))
    for ending in ("jsonl", "parquet"):
        copy = tmp_path / f"own.{ending}"
        assert wanted == [(one.components, one.component_statuses) for one in figures(copy)]
        assert graders(mttp.read(tmp_path / "apart.jsonl").summary()) == graders(mttp.summarize(copy))
        assert mttp.check(tmp_path / "apart.jsonl").ids == mttp.check(copy).ids


@pytest.mark.parametrize("steps", ["spans", "packed", "auto"])
def test_components_of_steps_reach_every_transport(steps: str, tmp_path: Path) -> None:
    """
    As bytes and as lists, without content, in steps with spans and in columns, read as values and summed up.
    """
    own, messages, lines = (tmp_path / name for name in ("own.jsonl", "messages.jsonl", "lines.jsonl"))
    with OtlpReceiver() as receiver:
        collector = mttp.Route(receiver.http_address, content=False)
        transport = ["memory://", f"file://{own}", f"mttp+file://{messages}", collector]
        with mttp.configure(transport, steps=steps) as session:
            env = mttp.wrap(Paying(cart_pole(), constant_components))
            env.reset(seed=1)
            for _ in range(8):
                env.step(0)
            env.close()
        lines.write_bytes(b"".join(encode_records(mttp.scan(receiver, arrays=True))))
        sources = (session, own, messages, receiver, lines)
        recordings, summaries = [*map(mttp.read, sources)], [*map(mttp.summarize, sources)]

    components = [
        {"forward": number / 7, "ctrl": float(np.float32(-0.1) * number), "No Fall": 1.0, "alive": 0.5}
        for number in range(1, 9)
    ]
    for recording, summary in zip(recordings, summaries, strict=True):
        assert [] == recording.problems == summary.problems
        assert components == [step.rewards[-1].components for step in recording[0].steps]
        assert graders(recordings[0].summary()) == graders(summary) == graders(recording.summary())
        assert ["", *sorted(components[0])] == [grader.component for grader in summary.graders]
    both = [span for path in (lines, own) for span in mttp.scan(path, arrays=True)]
    (tmp_path / "both.jsonl").write_bytes(
        b"".join(encode_records(sorted(both, key=lambda span: not span.parent_id)))
    )
    assert {8} == {grader.count for grader in mttp.summarize(tmp_path / "both.jsonl").graders}


def test_components_of_an_unfinished_episode_are_summed_up(tmp_path: Path) -> None:
    """
    In a file without the episode's end, and in its Parquet copy with digests.
    """
    played(
        "packed",
        lambda: Paying(cart_pole(), constant_components),
        count=8,
        address=f"file://{tmp_path}/a.jsonl",
    )
    spans = [span for span in mttp.scan(tmp_path / "a.jsonl", arrays=True) if span.name == "steps"]
    (tmp_path / "b.jsonl").write_bytes(b"".join(encode_records(spans)))
    parquet.write(tmp_path / "b.parquet", spans)

    for name in ("a.jsonl", "b.jsonl", "b.parquet"):
        found = {
            one.component: (one.count, one.min, one.max) for one in mttp.summarize(tmp_path / name).graders
        }
        assert (8, 1 / 7, 8 / 7) == found["forward"]
        assert (8, 1.0, 1.0) == found["No Fall"]


def test_constant_components_are_columns(tmp_path: Path) -> None:
    """
    Of an environment and of a vector: an episode has no other span than its root and its steps.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl"):
        env = mttp.wrap(Paying(cart_pole(), constant_components))
        env.reset(seed=1)
        for _ in range(5):
            env.step(0)
        env.close()
        one = [lambda: Paying(cart_pole(), constant_components)]
        envs = mttp.wrap(gymnasium.vector.SyncVectorEnv(one))
        envs.reset(seed=1)
        for _ in range(5):
            envs.step(np.array([0]))
        envs.close()

    found = [*mttp.scan(tmp_path / "a.jsonl", arrays=True)]
    blocks = [span.attributes for span in found if span.name == "steps"]
    assert {"run", "steps", "episode"} == {span.name.partition(" ")[0] for span in found}
    assert [5, 5] == [block[a.STEPS_COUNT] for block in blocks]
    assert [1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7] == [
        *np.frombuffer(blocks[0][f"{a.STEPS_COLUMN}.{a.REWARD_SCORE}.forward"])
    ]


def test_components_with_ever_new_names_are_columns_up_to_a_number(tmp_path: Path) -> None:
    """
    The steps after them have spans below, which no block holds.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl"):
        env = mttp.wrap(Paying(gymnasium.make("MountainCar-v0"), new_components))
        env.reset(seed=1)
        for _ in range(100):
            env.step(1)
        env.close()

    found = Counter(span.name for span in mttp.scan(tmp_path / "a.jsonl"))
    components = [step.rewards[-1].components for step in mttp.read(tmp_path / "a.jsonl")[0].steps]
    assert (36, 36) == (found["step"], found["reward"])
    assert [{f"{number}": 0.5} for number in range(1, 101)] == components


def figures(path: Path) -> list[EpisodeFigures]:
    """Return the figures of a file's episodes from its spans, which are those of its values."""
    found = read_figures(path)
    assert figures_of_values(mttp.read(path)) == found
    return found


def graders(summary: Summary) -> list[GraderHealth]:
    """Return what a summary says of graders, without the ids of episodes."""
    return [replace(one, failures=()) for one in summary.graders]


def test_a_packed_episode_is_two_spans(tmp_path: Path) -> None:
    """
    The root and one block of all steps, if no step is used by the program.
    """
    found = played("packed", cart_pole, count=10, address=f"file://{tmp_path}/a.jsonl")

    spans = Counter(span.trace_id for span in mttp.scan(tmp_path / "a.jsonl"))
    assert {2} == {spans[episode.trace_id] for episode in found.episodes}
    assert [1 + len(episode.steps) for episode in found.episodes] == [
        episode.span_count for episode in found.episodes
    ]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_by_default_a_file_has_packed_steps_and_reads_like_spans(name: str, tmp_path: Path) -> None:
    """
    From the first step on; a step that columns cannot hold is a span, and the recordings are equal.
    """
    address = f"file://{tmp_path}/a.jsonl"
    apart = played("spans", ENVIRONMENTS[name]).episodes
    packed = played("auto", ENVIRONMENTS[name], address=address).episodes

    assert len(apart) == len(packed)
    for expected, actual in zip(apart, packed, strict=True):
        assert_same(expected, actual, ignore=OTHERWISE)
    assert 0 == sum(bool(step.span_id) for step in packed[0].steps[:2])


class _Ignoring(SpanProcessor):
    """A span processor that does nothing."""


@pytest.mark.parametrize(
    ("transport", "processors", "spans"),
    [
        ("file://a.jsonl", [], 0),
        (["file://a.jsonl", "file://b.jsonl.gz"], [], 0),
        ("file://runs/", [], 0),
        ("memory://", [], 5),
        (["file://a.jsonl", "memory://"], [], 0),
        (["file://a.jsonl", "http://localhost:9"], [], 0),
        ("file://a.jsonl", [_Ignoring()], 5),
    ],
)
@pytest.mark.parametrize("vector", [False, True], ids=["one", "vector"])
def test_by_default_each_transport_has_its_own_form(
    transport: Any, processors: list[SpanProcessor], spans: int, vector: bool
) -> None:
    """
    A file has columns, whatever the other transports have; with span processors each step is a span.
    """
    with mttp.configure(transport, processors=processors) as session:
        if vector:
            env = mttp.wrap(gymnasium.make_vec("CartPole-v1", num_envs=1, vectorization_mode="sync"))
        else:
            env = mttp.wrap(cart_pole())
        env.reset(seed=1)
        for _ in range(5):
            env.step(np.array([0]) if vector else 0)
        env.close()
        session.flush(1.0)
        source = next(source for source in ("a.jsonl", "runs", session) if _is_there(source))
        (episode,) = mttp.read(source).episodes
        session.close(0.1)

    assert (5, 6, spans) == (
        len(episode.steps),
        episode.span_count,
        sum(bool(step.span_id) for step in episode.steps),
    )


def _is_there(source: Any) -> bool:
    return not isinstance(source, str) or Path(source).exists()


def test_by_default_other_episodes_in_a_file_are_spans() -> None:
    """
    A step of a program's own loop can be referred to by its span id.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode() as episode:
        for _ in range(3):
            with episode.step() as step:
                step.reward(1.0)

    (found,) = mttp.read("a.jsonl").episodes
    assert (4, [True] * 3) == (found.span_count, [bool(step.span_id) for step in found.steps])


def test_a_step_with_tokens_or_children_in_a_file_is_a_span_and_others_are_not() -> None:
    """
    The steps after it are in columns again.
    """

    class Policy(gymnasium.Wrapper):  # type: ignore[type-arg]
        def step(self, action: Any) -> Any:
            if action == 1:
                mttp.current_step().tokens([1, 2], logprobs=[-0.5, -0.25])
                with trace.get_tracer("physics").start_as_current_span("solve"):
                    pass
            return self.env.step(action)

    with mttp.configure("file://a.jsonl"):
        env = mttp.wrap(Policy(cart_pole()))
        env.reset(seed=1)
        for action in (0, 1, 0):
            env.step(action)
        env.close()

    (found,) = mttp.read("a.jsonl").episodes
    assert [False, True, False] == [bool(step.span_id) for step in found.steps]
    assert [1, 2] == found.steps[1].tokens.ids.tolist()
    assert {"solve"} <= {span.name for span in mttp.scan("a.jsonl")}


def test_an_environment_in_place_is_packed_too() -> None:
    """
    Wrapped or in place, with the action positional or by keyword.
    """
    with mttp.configure(transport="memory://", steps="packed") as session:
        env = cart_pole()
        with mttp.instrument(env):
            env.reset(seed=1)
            for number in range(5):
                env.step(number % 2) if number % 2 else env.step(action=number % 2)

    (found,) = mttp.read(session).episodes
    assert ([0, 1, 0, 1, 0], 6) == ([step.action for step in found.steps], found.span_count)
    assert not any(step.span_id for step in found.steps)


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_an_environment_is_called_as_its_user_calls_it(steps: str) -> None:
    """
    Its `step` may have an optional action and further arguments.
    """

    class Own(gymnasium.Wrapper):  # type: ignore[type-arg]
        def step(self, action: Any = 1, times: int = 1) -> Any:
            self.given.append((action, times))
            return self.env.step(action)

    env = Own(cart_pole())
    env.given = []
    with mttp.configure(transport="memory://", steps=steps) as session, mttp.instrument(env):
        env.reset(seed=1)
        env.step(0)
        env.step()
        env.step(0, 2)
        env.step(0, times=3)

    assert [(0, 1), (1, 1), (0, 2), (0, 3)] == env.given
    assert [0, None, 0, 0] == [step.action for step in mttp.read(session).episodes[0].steps]


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_an_info_that_is_not_a_mapping_has_no_facts(steps: str) -> None:
    """
    Some environments return None, or an array, whose truth value is an error.
    """

    class Odd(gymnasium.Wrapper):  # type: ignore[type-arg]
        count = 0

        def step(self, action: Any) -> Any:
            self.count += 1
            *result, _ = self.env.step(action)
            return *result[:2], self.count == 4, False, (None, np.zeros(2), [], 1)[self.count % 4]

    env = Odd(cart_pole())
    with mttp.configure(transport="memory://", steps=steps) as session, mttp.instrument(env):
        env.reset(seed=1)
        for _ in range(4):
            env.step(0)

    (found,) = mttp.read(session).episodes
    assert ({}, 4, True) == (dict(session.stats.faults), len(found.steps), found.terminated)


def test_a_span_within_a_step_is_its_child() -> None:
    """
    The step becomes a span when a span starts while the environment computes.
    """

    class Traced(gymnasium.Wrapper):  # type: ignore[type-arg]
        def step(self, action: Any) -> Any:
            if action == 1:
                with trace.get_tracer("physics").start_as_current_span("solve"):
                    pass
            return self.env.step(action)

    with mttp.configure(transport="memory://", steps="packed") as session:
        env = mttp.wrap(Traced(cart_pole()))
        env.reset(seed=1)
        for action in (0, 1, 0):
            env.step(action)
        env.close()

    spans = {record.name: record for record in session.records()}
    assert spans["step"].span_id == spans["solve"].parent_id
    assert 1 == spans["step"].attributes[a.STEP_INDEX]
    assert [0, 1, 0] == [step.action for step in mttp.read(session).episodes[0].steps]


def test_an_error_ends_the_step_and_the_episode() -> None:
    """
    As with steps that are spans.
    """

    class Breaking(gymnasium.Wrapper):  # type: ignore[type-arg]
        def step(self, action: Any) -> Any:
            if action == 1:
                raise RuntimeError("broken")
            return self.env.step(action)

    def run(steps: str) -> mttp.Episode:
        with mttp.configure(transport="memory://", run_id="run", steps=steps) as session:
            env = mttp.wrap(Breaking(cart_pole()))
            env.reset(seed=1)
            env.step(0)
            with pytest.raises(RuntimeError):
                env.step(1)
        found = mttp.read(session).episodes[0]
        configuration.forget()
        return found

    apart, packed = run("spans"), run("packed")

    assert_same(apart, packed, ignore=OTHERWISE)
    assert "RuntimeError" == packed.steps[1].error_type


def test_a_closed_session_takes_no_more_steps() -> None:
    """
    The environment keeps working, and a new session records from the next reset on.
    """
    env = mttp.wrap(cart_pole())
    with mttp.configure(transport="memory://", steps="packed") as first:
        env.reset(seed=1)
        env.step(0)
    env.step(1)
    with mttp.configure(transport="memory://", steps="packed") as second:
        env.step(0)
        env.reset(seed=1)
        env.step(1)
        env.close()

    assert [[0], [1]] == [
        [step.action for step in mttp.read(session).episodes[0].steps] for session in (first, second)
    ]


def test_vector_environments_are_packed_by_environment() -> None:
    """
    Each environment has blocks of its own.
    """

    def run(steps: str) -> list[mttp.Episode]:
        with mttp.configure(transport="memory://", run_id="run", steps=steps) as session:
            envs = mttp.wrap(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))
            envs.reset(seed=3)
            for number in range(20):
                envs.step(np.array([number % 2, 1]))
            envs.close()
        found = sorted(mttp.read(session).episodes, key=lambda episode: episode.index or 0)
        configuration.forget()
        return found

    for expected, actual in zip(run("spans"), run("packed"), strict=True):
        assert_same(expected, actual, ignore=OTHERWISE)


def test_an_episode_of_a_vector_environment_is_two_spans(tmp_path: Path) -> None:
    """
    The root and one block of all steps, since no program uses a step of one of several environments.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl") as session:
        envs = mttp.wrap(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))
        envs.reset(seed=3)
        for number in range(8):
            envs.step(np.array([number % 2, 0]))
        envs.close()

    spans = Counter(span.trace_id for span in mttp.scan(tmp_path / "a.jsonl"))
    episodes = mttp.read(session).episodes
    assert [(2, 8), (2, 8)] == [(spans[episode.trace_id], len(episode.steps)) for episode in episodes]


def test_arrays_that_a_vector_environment_reuses_are_copied() -> None:
    """
    Observations, actions and rewards are recorded as they were when the step ended.
    """

    class Reusing(gymnasium.vector.VectorEnv):  # type: ignore[type-arg]
        num_envs = 1
        metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        single_observation_space = gymnasium.spaces.Box(0, 9, (2,), np.float32)
        single_action_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        observation_space = gymnasium.spaces.Box(0, 9, (1, 2), np.float32)
        action_space = gymnasium.spaces.Box(0, 9, (1, 1), np.float32)
        state, paid = np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32)
        no = np.zeros(1, bool)

        def reset(self, **_: Any) -> Any:
            return self.state, {}

        def step(self, actions: Any) -> Any:
            for array in (self.state, self.paid, actions):
                array += 1
            return self.state, self.paid, self.no, self.no, {}

    with mttp.configure("memory://", steps="packed") as session:
        envs = mttp.wrap(Reusing())
        envs.reset()
        actions = np.zeros((1, 1), np.float32)
        for _ in range(3):
            envs.step(actions)
        envs.close()

    steps = mttp.read(session).episodes[0].steps
    assert [([n, n], [n], n + 1) for n in range(3)] == [
        (step.observation.tolist(), step.action.tolist(), step.reward) for step in steps
    ]


def test_what_shows_the_environment_s_state_is_copied() -> None:
    """
    An observation that the environment changes later is recorded as returned.
    """

    class Reusing(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Box(0, 9, (2,), np.float32)
        action_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        state = np.zeros(2, np.float32)

        def reset(self, **_: Any) -> Any:
            return self.state, {}

        def step(self, action: Any) -> Any:
            self.state += 1
            action += 1
            return self.state, 1.0, False, False, {}

    with mttp.configure(transport="memory://", steps="packed") as session:
        env = mttp.wrap(Reusing())
        env.reset()
        action = np.zeros(1, np.float32)
        for _ in range(3):
            env.step(action)
        env.close()

    found = mttp.read(session).episodes[0]
    assert [[0, 0], [1, 1], [2, 2]] == [step.observation.tolist() for step in found.steps]
    assert [[0], [1], [2]] == [step.action.tolist() for step in found.steps]
    assert [3, 3] == found.final_observation.tolist()
