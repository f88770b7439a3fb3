"""Episodes whose steps all are rows of the buffer: they read like episodes with handles."""

from __future__ import annotations

import contextvars
import copy
import gc
import itertools
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporters import taken
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from polling import eventually

import mttp
from mttp.codec.blocks import MAX_STEPS
from mttp.recording import configuration
from mttp.semconv import attributes as a
from mttp.testing import OtlpReceiver, assert_same

gymnasium = pytest.importorskip("gymnasium")

from mttp.integrations.gymnasium.env_episodes import EnvEpisodes  # noqa: E402 - it needs the library

spaces = gymnasium.spaces

OTHERWISE = ["trace_id", "id", "span_count", "env_wrappers"]
BOX = spaces.Box(-10, 10, (2,), np.float32)
DISCRETE = spaces.Discrete(1000)
BOTH = spaces.Dict({"place": spaces.Discrete(5), "speed": BOX})


class Scripted(gymnasium.Env):  # type: ignore[type-arg]
    """
    Three steps, the last of which ends the episode; `shows`, `pays` and `tells` are functions of the step's
    number.
    """

    action_space = spaces.Discrete(2)
    length = 3

    def __init__(
        self,
        shows: Callable[[int], Any] = lambda number: np.full(2, number, np.float32),
        space: Any = BOX,
        *,
        pays: Callable[[int], Any] = lambda _: 1.0,
        tells: Callable[[int], Any] = lambda _: {},
        is_cut: bool = False,
    ) -> None:
        self.observation_space = space
        self._shows, self._pays, self._tells, self._is_cut = shows, pays, tells, is_cut
        self._number = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin anew."""
        super().reset(seed=seed, options=options)
        self._number = 0
        return self._shows(0), {}

    def step(self, action: Any) -> Any:
        """Go on."""
        self._number += 1
        number, over = self._number, self._number == self.length
        ends = over and not self._is_cut, over and self._is_cut
        return self._shows(number), self._pays(number), *ends, self._tells(number)


class Asking(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Gets the episode's handle in each of its first steps."""

    has_asked = True

    def reset(self, **options: Any) -> Any:
        """Begin anew."""
        self.has_asked = False
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Ask once."""
        if not self.has_asked:
            self.has_asked = bool(mttp.current_episode())
        return self.env.step(action)


def last(usual: Callable[[int], Any], unusual: Any) -> Callable[[int], Any]:
    """Return the usual value, but another in the last step."""
    return lambda number: unusual if number == Scripted.length else usual(number)


def vector(number: int) -> Any:
    """Return an array."""
    return np.full(2, number, np.float32)


def place(number: int) -> Any:
    """Return a value of a Dict space."""
    return {"place": number, "speed": vector(number)}


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "CartPole": lambda: gymnasium.make("CartPole-v1"),
    "FrozenLake": lambda: gymnasium.make("FrozenLake-v1"),
    "Pendulum": lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7),
    "Blackjack": lambda: gymnasium.make("Blackjack-v1"),
    "dicts": lambda: Scripted(place, BOTH),
    "dicts that end out of their space": lambda: Scripted(last(place, {"place": 1}), BOTH),
    "int64": lambda: Scripted(np.int64, DISCRETE),
    "float64": lambda: Scripted(np.float64, DISCRETE),
    "bool_": lambda: Scripted(lambda number: np.bool_(number % 2), DISCRETE),
    "float32": lambda: Scripted(np.float32, DISCRETE),
    "nothing": lambda: Scripted(lambda _: None, DISCRETE),
    "text": lambda: Scripted(lambda number: f"état {number}\ud800", spaces.Text(10)),
    "integers that end beyond int64": lambda: Scripted(last(int, 2**63), DISCRETE),
    "integers that end as NaN": lambda: Scripted(last(int, float("nan")), DISCRETE),
    "integers that end as text": lambda: Scripted(last(int, "over"), DISCRETE),
    "arrays that end as others": lambda: Scripted(last(vector, np.zeros(2))),
    "arrays that end as a number": lambda: Scripted(last(vector, 5)),
    "arrays of no dimension": lambda: Scripted(np.array),
    "arrays of no elements": lambda: Scripted(lambda _: np.zeros((0,), np.float32)),
    "arrays in another order": lambda: Scripted(lambda number: np.arange(6.0).reshape(2, 3).T + number),
    "success": lambda: Scripted(tells=last(lambda _: {}, {"success": True})),
    "failure": lambda: Scripted(tells=last(lambda _: {}, {"is_success": np.bool_(False)})),
    "components": lambda: Scripted(tells=lambda number: {"reward_odd": 1.0} if number % 2 else {}),
    "truncated": lambda: Scripted(is_cut=True),
    "paid with NaN": lambda: Scripted(pays=last(float, float("nan"))),
    "paid beyond floats": lambda: Scripted(pays=lambda _: 1.7e308),
    "paid in integers": lambda: Scripted(pays=int),
    "paid in arrays": lambda: Scripted(pays=lambda number: np.array([number])),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"observations": False},
    {"actions": False},
    {"max_bytes": 8},
    {"max_bytes": 4},
    {"metadata": {"run": 1}},
    {"policy": "50%d", "group": "Größe", "task": 7},
]


def played(
    address: str, make: Callable[[], Any], **options: Any
) -> tuple[list[mttp.Episode], dict[str, int]]:
    """Return three episodes, of which the first has a seed, and the session's faults."""
    with mttp.configure(address, run_id="run", steps="packed") as session:
        env = mttp.wrap(make(), **options)
        env.action_space.seed(1)
        count = 0
        for seed in (5, None, None):
            env.reset(seed=seed)
            over = False
            while not over:
                _, _, *ends, _ = env.step(env.action_space.sample())
                over, count = any(ends), count + 1
    assert (3, count, {}) == (session.stats.episodes, session.stats.steps, session.stats.lost)
    found = mttp.read(session if session.location is None else session.location)
    configuration.forget()
    return list(found.episodes), dict(session.stats.faults)


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_episode_is_the_same_without_a_handle(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """
    In memory, and in files, where such episodes are written together.
    """
    make = ENVIRONMENTS[name]
    expected, wrong = played("memory://", lambda: Asking(make()), **options)

    for address in ("memory://", f"file://{tmp_path}/wholes.jsonl"):
        found, faults = played(address, make, **options)
        assert wrong == faults
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert_same(one, other, ignore=OTHERWISE)


# A program reads a step in the middle of an episode.


class Doing(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Calls a function with the step's number in each step, after the environment has computed."""

    def __init__(self, env: Any, do: Callable[[int], Any]) -> None:
        super().__init__(env)
        self._do, self._count = do, 0

    def step(self, action: Any) -> Any:
        """Step, and do it."""
        result = self.env.step(action)
        self._count += 1
        self._do(self._count)
        return result


def play(env: Any, episodes: int = 1) -> int:
    """Step until the episodes end; return the number of steps."""
    count = 0
    for _ in range(episodes):
        env.reset()
        over = False
        while not over:
            _, _, *ends, _ = env.step(1)
            over, count = any(ends), count + 1
    return count


@pytest.fixture
def session() -> Iterator[mttp.Session]:
    """Configure a session with steps in columns."""
    with mttp.configure("memory://", run_id="run", steps="packed") as opened:
        yield opened


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_step_can_be_used(session: mttp.Session, number: int) -> None:
    """
    Values recorded on the current step are there, in the first step as in the last.
    """

    def say(count: int) -> None:
        if count % 3 == number % 3:
            mttp.current_step().metric("step", count)
            mttp.current_episode().metric("episode", count)

    assert 6 == play(mttp.wrap(Doing(Scripted(), say)), 2)

    found = mttp.read(session).episodes
    assert [{"episode": float(number)}, {"episode": float(number + 3)}] == [each.metrics for each in found]
    said = [[step.metrics for step in each.steps] for each in found]
    assert [{"step": float(number)}, {"step": float(number + 3)}] == [each[number - 1] for each in said]
    assert [3, 3] == [len(each) for each in said]


def test_a_context_of_an_ended_episode_has_no_current_step(session: mttp.Session) -> None:
    """
    A thread may outlive the episode whose context it has.
    """
    contexts: list[contextvars.Context] = []
    got: list[bool] = []

    def ask(count: int) -> None:
        contexts.append(contextvars.copy_context())
        for context in contexts[:3] if count == 5 else ():
            got.append(context.run(lambda: bool(mttp.current_episode()) or bool(mttp.current_step())))

    play(mttp.wrap(Doing(Scripted(), ask)), 2)

    assert [False, False, False] == got
    found = mttp.read(session).episodes
    assert [4, 4] == [episode.span_count for episode in found]
    assert not any(step.span_id for episode in found for step in episode.steps)


def test_an_earlier_step_s_context_has_the_episode(session: mttp.Session) -> None:
    """
    Its handle is the same from everywhere while the episode is open.
    """
    contexts: list[contextvars.Context] = []
    handles: list[Any] = []

    def ask(count: int) -> None:
        contexts.append(contextvars.copy_context())
        if count == 3:
            handles.extend(context.run(mttp.current_episode) for context in contexts)

    play(mttp.wrap(Doing(Scripted(), ask)))

    assert [True] * 3 == [handle is handles[0] and bool(handle) for handle in handles]
    assert [3] == [len(episode.steps) for episode in mttp.read(session).episodes]


def test_an_episode_within_a_step_leaves_the_step_s_own_current(session: mttp.Session) -> None:
    """
    Whether it ends with its block or inside it.
    """
    current: list[str] = []

    def score(_: int) -> None:
        with mttp.episode(env="inner") as inner:
            inner.end()
            current.append(mttp.current_episode().env)
        current.append(mttp.current_episode().env)

    play(mttp.wrap(Doing(Scripted(), score)))

    assert ["Scripted"] * 6 == current
    envs = [episode.env for episode in mttp.read(session).episodes]
    assert (1, 3) == (envs.count("Scripted"), envs.count("inner"))


@pytest.mark.parametrize("address", ["memory://", "file://flushed.jsonl"])
def test_flushing_all_the_time_loses_nothing(address: str) -> None:
    """
    Each episode is there once, with all its steps.
    """
    over = threading.Event()
    with mttp.configure(address, steps="packed") as session:

        def flush() -> None:
            while not over.is_set():
                session.flush()

        thread = threading.Thread(target=flush)
        thread.start()
        count = play(mttp.wrap(Scripted()), 300)
        over.set()
        thread.join()

    found = mttp.read(session if session.location is None else session.location)
    assert (300, 900, count) == (session.stats.episodes, session.stats.steps, 900)
    assert ({}, {}, []) == (session.stats.faults, session.stats.lost, found.problems)
    assert {(3, "completed", 3.0)} == {
        (len(each.steps), each.status, each.return_) for each in found.episodes
    }
    assert [*range(300)] == sorted(each.index for each in found.episodes if each.index is not None)


def test_a_step_that_another_thread_opens_while_it_ends_is_one_step(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The thread that ends the step waits for the one that opens it.
    """
    is_opening, never = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    open_step = EnvEpisodes.open_step

    def slowly(*args: Any, **facts: Any) -> Any:
        is_opening.set()
        never.wait(0.1)  # by then the environment's thread would have entered a step of its own
        return open_step(*args, **facts)

    def ask(count: int) -> None:
        if count == 2:
            context = contextvars.copy_context()
            threads.append(threading.Thread(target=context.run, args=(mttp.current_step,)))
            threads[0].start()
            is_opening.wait()

    monkeypatch.setattr(EnvEpisodes, "open_step", slowly)
    play(mttp.wrap(Doing(Scripted(), ask)))
    threads[0].join()

    assert 3 == session.stats.steps
    assert [3] == [len(episode.steps) for episode in mttp.read(session).episodes]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
def test_a_signal_handler_may_use_the_step_and_flush() -> None:
    """
    At any time, also while a step is opened, an episode ends, or another handler runs.
    """
    within: list[None] = []

    def handler(*_: object) -> None:
        if len(within) == 3:  # where a handler takes longer than the timer, there is no end to them
            return
        within.append(None)
        mttp.current_step().metric("asked", 1)
        mttp.current_episode().metric("asked", 1)
        session.flush()
        within.pop()

    before = signal.signal(signal.SIGALRM, handler)
    with mttp.configure("memory://", steps="packed") as session:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            play(mttp.wrap(Doing(Scripted(), lambda _: mttp.current_episode())), 150)
            play(mttp.wrap(Scripted()), 150)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    found = mttp.read(session).episodes
    assert [*range(300)] == sorted(each.index for each in found if each.index is not None)
    assert {(3, "completed")} == {(len(each.steps), each.status) for each in found}


@pytest.mark.parametrize(("at", "steps"), [(1, 0), (2, 1), (3, 2)])
def test_a_session_may_be_closed_in_the_middle_of_a_step(session: mttp.Session, at: int, steps: int) -> None:
    """
    The steps before it are recorded, and the environment keeps working.
    """
    env = mttp.wrap(Doing(Scripted(), lambda count: session.close() if count == at else None))
    play(env, 2)

    (found,) = mttp.read(session).episodes
    assert ("unfinished", steps) == (found.status, len(found.steps))
    assert {"episode_never_ended": 1} == session.stats.faults


@pytest.mark.parametrize("length", [999, 1000, 1001, 2000, 2001])
@pytest.mark.parametrize("asks", [False, True])
def test_no_span_holds_more_steps_than_one_may(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch, length: int, asks: bool
) -> None:
    """
    Also where an episode ends one step after the limit.
    """
    monkeypatch.setattr(Scripted, "length", length)
    play(mttp.wrap(Asking(Scripted()) if asks else Scripted()))

    counts = [span.attributes[a.STEPS_COUNT] for span in session.records() if span.name == "steps"]
    assert length == sum(counts)
    assert max(counts) <= MAX_STEPS
    (found,) = mttp.read(session).episodes
    assert (length, "completed", float(length)) == (len(found.steps), found.status, found.return_)


def test_options_may_change_in_the_middle(session: mttp.Session) -> None:
    """
    Rows from before keep their form.
    """
    env = Scripted()
    mttp.instrument(env)
    env.reset()
    env.step(1)
    mttp.instrument(env, observations=False)
    env.step(1)
    env.step(1)

    (found,) = mttp.read(session).episodes
    assert [[0, 0], [1, 1], None] == [
        None if step.observation is None else step.observation.tolist() for step in found.steps
    ]


def test_processors_that_come_later_see_each_step_of_later_episodes(session: mttp.Session) -> None:
    """
    Also of an environment whose steps had no handles so far.
    """
    names: list[str] = []

    class Seeing(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            names.append(span.name)

    env = mttp.wrap(Scripted())
    play(env)
    session._add_processor(Seeing())
    play(env)

    assert ["step", "step", "step", "episode Scripted"] == names


def test_faults_of_a_reset_do_not_carry_over(session: mttp.Session) -> None:
    """
    An environment may be reset twice before its first step.
    """
    shown: list[Any] = [np.zeros(2, np.float32)] * 4 + [object(), *[np.zeros(2, np.float32)] * 4]
    env = mttp.wrap(Scripted(lambda _: shown.pop(0)))
    play(env)
    env.reset()
    play(env)

    assert {} == session.stats.faults
    assert [(), ()] == [episode.steps[0].faults for episode in mttp.read(session).episodes]


def test_a_collector_gets_them_as_any_other() -> None:
    """
    As two spans each, and without content.
    """
    with OtlpReceiver() as receiver, mttp.configure(receiver.http_address, steps="packed") as session:
        play(mttp.wrap(Scripted()), 20)
        session.flush()
        found = mttp.read(receiver).episodes

    assert {(3, "completed", 3.0, 4)} == {
        (len(each.steps), each.status, each.return_, each.span_count) for each in found
    }
    assert 20 == len(found)
    assert {("mttp.episode.final_observation.value: content is off",)} == {each.omissions for each in found}


def test_a_file_that_may_not_have_content_has_none_of_theirs(tmp_path: Path) -> None:
    """
    Another transport of the session has all of it.
    """
    withheld = mttp.Route(f"file://{tmp_path}/without.jsonl", content=False)
    with mttp.configure([withheld, f"file://{tmp_path}/with.jsonl"], steps="packed"):
        play(mttp.wrap(Scripted()), 20)

    without, whole = (mttp.read(tmp_path / f"{name}.jsonl").episodes for name in ("without", "with"))
    assert {None} == {step.observation for each in without for step in each.steps}
    assert {None} == {each.final_observation for each in without}
    assert [[0, 0], [1, 1], [2, 2]] == [step.observation.tolist() for step in whole[0].steps]
    assert [20, 20] == [len(without), len(whole)]


def test_sampling_selects_whole_episodes() -> None:
    """
    By a rule over their attributes.
    """
    outcomes = itertools.cycle([True, False])
    env = Scripted(tells=lambda number: {"success": next(outcomes)} if number == Scripted.length else {})
    sampling = mttp.Sampling(0.0, keep="failure")
    with OtlpReceiver() as receiver:
        with mttp.configure(receiver.http_address, steps="packed", sampling=sampling) as session:
            play(mttp.wrap(env), 20)
        found = mttp.read(receiver).episodes

    assert [("failure", 3)] * 10 == [(each.outcome, len(each.steps)) for each in found]
    assert 20 == session.stats.sampled_out


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Python, from 3.12 on: it is what is tested
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_fork_in_the_middle_leaves_the_episode_to_the_parent(at: int, tmp_path: Path) -> None:
    """
    After any step of the first episode, or the first of the second; the child records its own later ones.
    """
    with mttp.configure(f"file://{tmp_path}/forked.jsonl", steps="packed") as session:
        env = mttp.wrap(Scripted())
        for count in range(1, 7):
            if count % 3 == 1:
                env.reset()
            env.step(1)
            if count == at and not (child := os.fork()):
                try:
                    play(env)
                    session.close()
                finally:
                    os._exit(0)
        os.waitpid(child, 0)

    assert (2, 6) == (session.stats.episodes, session.stats.steps)
    found = mttp.read(tmp_path).episodes
    assert [("completed", 3)] * 3 == [(each.status, len(each.steps)) for each in found]


def test_nothing_of_an_episode_waits_for_the_garbage_collector(tmp_path: Path) -> None:
    """
    Whether or not the program used its handle.
    """

    class Paid(float):
        """A reward that can be referenced weakly."""

    known: list[weakref.ref[Any]] = []

    def keep(thing: Any) -> Any:
        known.append(weakref.ref(thing))
        return thing

    def pays(_: int) -> Any:
        return keep(Paid(1.0))

    with mttp.configure(f"file://{tmp_path}/a.jsonl", steps="packed") as session:
        gc.disable()
        try:
            quiet, asking = Scripted(pays=pays), Scripted(pays=pays)
            envs = [mttp.wrap(quiet), mttp.wrap(Doing(asking, lambda _: keep(mttp.current_episode())))]
            for env in envs:
                play(env, 4)
            session.flush()
            of_the_last_handle = {*range(30, 36)}  # which an environment may hold
            others = [one for place, one in enumerate(known) if place not in of_the_last_handle]
            assert eventually(lambda: not any(one() is not None for one in others))
        finally:
            gc.enable()

    assert 36 == len(known)


# Environments within environments, copies, and several who record.


class Outer(Scripted):
    """Runs an episode of another environment in each step."""

    def __init__(self) -> None:
        super().__init__()
        self._inner = mttp.wrap(Scripted(int, DISCRETE))

    def step(self, action: Any) -> Any:
        """Go on."""
        play(self._inner)
        return super().step(action)


def resets_itself() -> None:
    """The call after an episode's end is a reset."""
    env = mttp.wrap(gymnasium.wrappers.Autoreset(Scripted()))
    env.reset(seed=1)
    for _ in range(9):
        env.step(1)


def is_copied() -> None:
    """Copy the environment in the middle of an episode, and between two."""
    env = mttp.wrap(gymnasium.make("CartPole-v1"))
    for count in (1, 40):
        env.reset(seed=1)
        for _ in range(count):
            if any(env.step(1)[2:4]):
                break
        for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
            other.step(0) if count == 1 else None
            other.reset(seed=2)
            other.step(0)
            other.close()
    env.close()


def is_recorded_twice() -> None:
    """Record it by a wrapper, and in place."""
    base = Scripted()
    env = mttp.wrap(base)
    with mttp.instrument(base):
        play(env, 2)
        env.reset()
        env.step(1)
    play(env)


def moves_between_threads() -> None:
    """Step in another thread each time."""
    env = mttp.wrap(Scripted())
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            env.reset()
            env.step(1)
            pool.submit(env.step, 1).result()
            env.step(1)
            pool.submit(env.reset).result()
            pool.submit(play_on, env).result()


def play_on(env: Any) -> None:
    """Step an episode after its reset."""
    for _ in range(Scripted.length):
        env.step(1)


def returns_what_is_no_step() -> None:
    """Return tuples of the wrong length, or ends that are not booleans."""

    class Wrong(gymnasium.Wrapper):  # type: ignore[type-arg]
        def step(self, action: Any) -> Any:
            observation, reward, *rest = self.env.step(action)
            return observation, reward, *(action or rest)

    env = mttp.wrap(Wrong(Scripted()))
    for wrong in ([False, False], [np.zeros(2, bool), False, {}], [1, None, None]):
        env.reset()
        env.step(None)
        env.step(wrong)
        env.step(None)
    play(mttp.wrap(Scripted()))


@pytest.mark.parametrize(
    "use",
    [
        lambda: play(mttp.wrap(Outer()), 2),
        resets_itself,
        is_copied,
        is_recorded_twice,
        moves_between_threads,
        returns_what_is_no_step,
    ],
)
def test_packed_steps_are_those_of_spans_however_an_environment_is_used(use: Callable[[], Any]) -> None:
    """
    Each step is recorded once, by the outermost recorder.
    """
    found = []
    for steps in ("spans", "packed"):
        with mttp.configure("memory://", run_id="run", steps=steps) as session:
            use()
        counted = session.stats.episodes, session.stats.steps, session.stats.faults
        found.append((list(mttp.read(session).episodes), counted))
        configuration.forget()

    (apart, expected), (packed, actual) = found
    assert expected == actual
    assert len(apart) == len(packed) > 0
    for one, other in zip(apart, packed, strict=True):
        assert_same(one, other, ignore=["trace_id", "id", "span_count"])


@pytest.mark.parametrize("options", [{}, {"policy": "mine", "group": 3, "task": None}], ids=["none", "all"])
@pytest.mark.parametrize("make", [lambda: gymnasium.make("CartPole-v1"), Scripted], ids=["made", "own"])
def test_unused_steps_have_no_spans(make: Callable[[], Any], options: Any) -> None:
    """
    All steps of a short episode are passed on as one batch.
    """
    with mttp.configure("memory://", steps="packed") as session:
        spans = taken(session)
        session._recorder.mark = lambda: None  # type: ignore[method-assign]  # of an episode that takes long
        env = mttp.wrap(make(), **options)
        play(env, episodes=3)
        env.close()

    assert [True, False] * 3 == [span.has_rows for span in spans]


def test_a_policy_is_named_when_an_episode_begins() -> None:
    """
    A policy object's name may change from one episode to the next.
    """

    class Policy:
        version = 0

        def __str__(self) -> str:
            return f"policy {self.version}"

    policy = Policy()
    with mttp.configure("memory://", steps="packed") as session:
        env = mttp.wrap(Scripted(), policy=policy)
        for policy.version in range(3):
            play(env)
        env.close()

    assert ["policy 0", "policy 1", "policy 2"] == [one.policy for one in mttp.read(session).episodes]
