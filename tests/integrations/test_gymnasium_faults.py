"""Errors in an environment or in its recording: the caller gets what the environment returned or raised."""

from __future__ import annotations

import contextvars
import logging
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from integrations.specimen import PLAYS, Play, Turn, only, told
from integrations.toys import Scripted, act_out

import mttp
from mttp.errors import InstrumentError
from mttp.integrations.gymnasium.env_steps import EnvSteps
from mttp.recording import OpenEpisode, OpenStep, configuration
from mttp.recording.session import Session
from mttp.recording.trajectory import StepBuffer


class Failing(Scripted):
    """Raises in its second step, or in its reset."""

    error: BaseException = ValueError("the simulator died")
    in_reset = False

    def reset(self, **kwargs: Any) -> Any:
        if self.in_reset:
            raise self.error
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        if self.at == 1 and not self.in_reset:
            raise self.error
        return super().step(action)


def test_an_error_in_step_ends_step_and_episode(session: mttp.Session) -> None:
    """
    The caller gets the exception, and the recording has it on step and episode.
    """
    env = Failing()
    mttp.instrument(env)

    env.reset()
    env.step(1)
    with pytest.raises(ValueError, match="died") as raised:
        env.step(0)

    episode = only(session)
    assert env.error is raised.value
    assert ("error", "ValueError", "the simulator died") == (
        episode.status,
        episode.error_type,
        episode.error_message,
    )
    assert [None, "ValueError"] == [step.error_type for step in episode.steps]
    assert [1, 0] == [step.action for step in episode.steps]


def test_an_interrupt_in_step_aborts(session: mttp.Session) -> None:
    """
    Ctrl-C ends the episode as aborted, not in error.
    """
    env = Failing()
    env.error = KeyboardInterrupt()
    mttp.instrument(env)

    env.reset()
    env.step(1)
    with pytest.raises(KeyboardInterrupt):
        env.step(0)

    assert ("aborted", "KeyboardInterrupt") == (only(session).status, only(session).stop_reason)


def test_the_next_reset_starts_afresh_after_an_error(session: mttp.Session) -> None:
    """
    Steps after an error are not recorded until the next reset.
    """
    env = Failing()
    mttp.instrument(env)
    env.reset()
    env.step(1)
    with pytest.raises(ValueError, match="died"):
        env.step(0)

    env.at = 2
    env.step(1)
    env.reset()
    env.step(0)

    assert [2, 1] == [len(episode.steps) for episode in mttp.read(session)]


def test_an_error_in_reset_is_the_callers(session: mttp.Session) -> None:
    """
    The open episode is aborted, and nothing else is recorded.
    """
    env = Failing()
    mttp.instrument(env)
    env.reset()
    env.step(1)
    env.in_reset = True

    with pytest.raises(ValueError, match="died"):
        env.reset()

    assert ("aborted", "reset") == (only(session).status, only(session).stop_reason)


@pytest.mark.parametrize(
    ("reward", "status", "raw"),
    [
        (float("nan"), "error", "nan"),
        (float("-inf"), "error", "-inf"),
        (None, "missing", None),
        ("much", "error", "much"),
        (np.array([1.0, 2.0]), "error", "array([1., 2.])"),
    ],
)
def test_a_reward_that_is_no_number(session: mttp.Session, reward: Any, status: str, raw: str | None) -> None:
    """
    The caller gets it, and it is never recorded as a number.
    """
    play = Play((Turn([0.0, 0.0], 0, reward), Turn([0.0, 1.0], 1, 1.0, terminated=True)), [0.0, 2.0])
    env = Scripted((play,))
    mttp.instrument(env)

    env.reset()
    _, paid, *_ = env.step(0)
    env.step(1)

    step, other = only(session).steps
    assert paid is reward
    assert (None, status, raw) == (step.reward, step.reward_status, step.reward_raw)
    assert 1.0 == other.reward


def test_observations_of_any_kind(session: mttp.Session) -> None:
    """
    Objects, text and None are kept as plain data, and the caller gets them unchanged.
    """
    shown = [np.array([{"a": 1}, None], dtype=object), "a lamp is here", None, object(), (1, "x")]
    turns = tuple(Turn(value, 0, 0.0) for value in shown)
    play = Play((*turns[:-1], Turn(shown[-1], 0, 0.0, truncated=True)), "the end")
    env = Scripted((play,))
    mttp.instrument(env)

    given = [env.reset()[0]]
    given += [env.step(0)[0] for _ in turns]

    found = [step.observation for step in only(session).steps]
    assert all(one is other for one, other in zip(given, shown, strict=False))
    assert [[{"a": 1}, None], "a lamp is here", None] == found[:3]
    assert found[3].startswith("<object object at")
    assert [1, "x"] == found[4]


def test_an_environment_with_slots(session: mttp.Session) -> None:
    """
    A subclass with slots still has a dict.
    """

    class Slotted(Scripted):
        __slots__ = ("extra",)

    env = Slotted()
    env.extra = 1
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    assert PLAYS[0] == told(only(session))


class Computed(Scripted):
    """An environment whose `step` is a property."""

    @property
    def step(self) -> Callable[[Any], Any]:
        return super().step


def test_a_computed_method_can_not_be_replaced(session: mttp.Session) -> None:
    """
    In place it is refused without side effects; wrapped it works.
    """
    env = Computed()

    with pytest.raises(InstrumentError, match=r"'step' of Computed is a property.*mttp\.wrap"):
        mttp.instrument(env)
    assert "reset" not in vars(env)
    act_out(mttp.wrap(env), PLAYS[:1])

    assert PLAYS[0] == told(only(session))


def test_a_step_after_the_end_is_counted(session: mttp.Session) -> None:
    """
    It starts no episode.
    """

    class Enduring(Scripted):
        def step(self, action: Any) -> Any:
            self.at = min(self.at, 2)
            return super().step(action)

    env = Enduring(PLAYS[:1])
    mttp.instrument(env)

    act_out(env, PLAYS[:1])
    env.step(0)
    env.step(0)

    assert PLAYS[0] == told(only(session))
    assert {"step_after_end": 2} == dict(session.stats.faults)


def test_an_environment_instrumented_in_mid_episode(session: mttp.Session) -> None:
    """
    It is recorded from its next reset on.
    """
    env = Scripted()
    env.reset()
    env.step(1)
    mttp.instrument(env)

    env.step(0)
    env.step(1)
    act_out(env, PLAYS[1:])

    assert PLAYS[1] == told(only(session))
    assert {} == dict(session.stats.faults)


@pytest.mark.parametrize(
    "result",
    [
        (np.zeros(2), 1.0, False, {}),
        None,
    ],
    ids=["old four", "nothing"],
)
def test_results_of_another_shape_reach_the_caller(session: mttp.Session, result: Any) -> None:
    """
    A result that is not Gymnasium's five values is counted, and returned unchanged.
    """

    class Odd(Scripted):
        def step(self, action: Any) -> Any:
            return result

    env = Odd()
    mttp.instrument(env)

    env.reset()
    given = env.step(0)

    assert given is result
    assert ("aborted", "recording_failed") == (only(session).status, only(session).stop_reason)
    assert {"integration_error": 1} == dict(session.stats.faults)
    assert (False, False) == (bool(mttp.current_step()), bool(mttp.current_episode()))


@pytest.mark.parametrize("info", [None, "fine", [], {1: 2, "reward_x": [1]}])
def test_infos_of_any_kind(session: mttp.Session, info: Any) -> None:
    """
    An info that is not a mapping has no facts.
    """

    class Informal(Scripted):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], info)

    env = Informal()
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    assert PLAYS[0] == told(only(session))
    assert {} == dict(session.stats.faults)


BREAKABLE = [
    (Session, "_episode_from_template"),
    (OpenEpisode, "_open_buffer"),
    (StepBuffer, "schedule"),
    (EnvSteps, "begin"),
    (EnvSteps, "_take"),
    (OpenEpisode, "step"),
    (OpenEpisode, "end"),
    (OpenEpisode, "final_observation"),
    (OpenStep, "observation"),
    (OpenStep, "action"),
    (OpenStep, "reward"),
    (OpenStep, "end"),
    (OpenStep, "__enter__"),
    (OpenStep, "__exit__"),
]


def raw_play(env: Any) -> list[Any]:
    """Return everything that an environment returns in two episodes, as bytes."""
    given: list[Any] = []
    for seed in (3, None):
        given.append(env.reset(seed=seed))
        over = False
        while not over:
            given.append(env.step(1))
            over = given[-1][2]
    return [
        item.tobytes() if isinstance(item, np.ndarray) else (type(item), item)
        for each in given
        for item in each
    ]


@pytest.mark.parametrize(("owner", "name"), BREAKABLE, ids=lambda part: getattr(part, "__name__", part))
def test_a_broken_recorder_breaks_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
) -> None:
    """
    Whichever part of the recorder raises, the caller gets a bare environment's results, and one line is
    logged.
    """
    has_handles = owner is OpenStep or name == "step"
    session = mttp.configure("memory://", steps="spans" if has_handles else "auto")
    bare = raw_play(gymnasium.make("CartPole-v1"))

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a bug of ours")

    env = gymnasium.make("CartPole-v1")
    mttp.instrument(env)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="mttp"):
        patched.setattr(owner, name, broken)
        given = contextvars.copy_context().run(raw_play, env)  # a broken exit leaves its step current

    counted = session.stats.faults["integration_error"]
    assert bare == given
    assert counted >= 1
    assert 1 == sum("integration_error" in record.getMessage() for record in caplog.records)
    assert (False, False) == (bool(mttp.current_step()), bool(mttp.current_episode()))


@pytest.mark.parametrize(
    ("steps", "owner", "name"), [("spans", OpenStep, "reward"), ("auto", StepBuffer, "schedule")]
)
def test_recording_continues_after_an_error(
    monkeypatch: pytest.MonkeyPatch, steps: str, owner: type, name: str
) -> None:
    """
    The affected episode is aborted, and the next one is complete.
    """
    session = mttp.configure("memory://", steps=steps)

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a bug of ours")

    env = Scripted()
    mttp.instrument(env)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        act_out(env, PLAYS[:1])
    act_out(env, PLAYS[1:])

    first, second = mttp.read(session).episodes
    assert ("aborted", "recording_failed") == (first.status, first.stop_reason)
    assert PLAYS[1] == told(second)


def test_a_session_closed_in_mid_episode(session: mttp.Session) -> None:
    """
    The environment keeps working, and nothing more is recorded.
    """
    env = Scripted()
    mttp.instrument(env)
    env.reset()
    env.step(1)

    session.close()
    spans = session.stats.spans
    given = [env.step(0)[1], env.step(1)[1]]
    act_out(env, PLAYS[1:])

    assert ([-1.25, 0.1], spans) == (given, session.stats.spans)
    assert ("unfinished", 1) == (only(session).status, only(session).length)


def test_an_episode_goes_to_the_session_of_its_first_step() -> None:
    """
    An environment outlives sessions: each episode is recorded in the session it started in, or not at all.
    """
    env = Scripted()
    with mttp.configure(transport="memory://") as first:
        mttp.instrument(env)
        act_out(env, PLAYS[:1])
        env.reset()
        env.step(0)
    with mttp.configure(transport="memory://") as second:
        env.step(0)
        act_out(env, PLAYS[:1])

    assert [3, 1] == [len(episode.steps) for episode in mttp.read(first)]
    assert [PLAYS[0]] == [told(episode) for episode in mttp.read(second)]


def test_without_configure_the_default_session_starts(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Instrumenting is enough; the path is logged once.
    """
    env = Scripted()

    mttp.instrument(env)
    act_out(env)
    session = configuration.current_session()
    assert session is not None
    session.close()

    assert list(PLAYS) == [told(episode) for episode in mttp.read("mttp-runs")]
    assert 1 == capsys.readouterr().err.count("recording episodes to")


def test_instrumenting_before_configuring() -> None:
    """
    A session that is configured later records.
    """
    env = Scripted()
    mttp.instrument(env)

    with mttp.configure(transport="memory://") as session:
        act_out(env)

    assert list(PLAYS) == [told(episode) for episode in mttp.read(session)]


def test_a_default_transport_that_can_not_be_opened_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The session would start in the training loop, which continues unrecorded.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "carrier-pigeon://loft")
    env = Scripted()

    with mttp.instrument(env):
        for _ in range(2):
            env.reset()
            env.step(0)

    assert ["mttp: nothing is recorded"] == [message[:25] for message in caplog.messages]
    assert not {"reset", "step", "close"} & vars(env).keys()


def test_without_configure_the_first_step_starts_the_default_session(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """
    Nothing is written before the first episode starts, and its path is logged once.
    """
    env = Scripted()
    mttp.instrument(env)
    env.reset()
    assert not (tmp_path / "mttp-runs").exists()

    env.step(0)
    env.close()
    mttp.current_session().close()

    assert 1 == len(mttp.read("mttp-runs"))
    assert 1 == capfd.readouterr().err.count("recording episodes to")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_parents_episode_alone(tmp_path: Path) -> None:
    """
    The open episode continues in the parent only; the child's next one is its own.
    """
    env = Scripted()

    with mttp.configure(transport=f"file://{tmp_path}/runs/"):
        mttp.instrument(env)
        env.reset()
        env.step(1)
        child = multiprocessing.get_context("fork").Process(target=_play_on, args=(env,))
        child.start()
        child.join()
        env.step(0)
        env.step(1)

    plays = [told(episode) for episode in mttp.read(tmp_path / "runs")]
    assert [PLAYS[0], PLAYS[1]] == plays


def _play_on(env: Any) -> None:
    env.step(0)
    act_out(env, PLAYS[1:])
