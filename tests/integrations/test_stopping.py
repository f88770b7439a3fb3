"""Callbacks that stop a training run by its diagnosis, with stand-ins for the trainers' libraries."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from integrations.diagnosed import play

import mttp
from mttp.integrations import stopping


class Callback:
    """The base class of a trainer's callbacks."""

    def __init__(self) -> None:
        self.is_ready = True


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that have no more than the base classes."""
    names = ("stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.callbacks")
    for name in (*names, "transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[names[-1]], "BaseCallback", Callback, raising=False)
    monkeypatch.setattr(sys.modules["transformers"], "TrainerCallback", Callback, raising=False)


def stops_sb3(callback: Any) -> bool:
    """Whether a rollout ends the training."""
    callback._on_rollout_end()
    return not callback._on_step()


def stops_trl(callback: Any) -> bool:
    """Whether an optimizer step ends the training."""
    control = SimpleNamespace(should_training_stop=False)
    assert control is callback.on_step_end(None, None, control, model=None)
    return bool(control.should_training_stop)


CALLBACKS = [
    pytest.param(stopping.sb3_callback, stops_sb3, id="stable_baselines3"),
    pytest.param(stopping.trl_callback, stops_trl, id="trl"),
]


@pytest.mark.parametrize(("make", "stops"), CALLBACKS)
def test_a_hacked_run_is_stopped(make: Any, stops: Any) -> None:
    """
    At the update that is diagnosed, and not before.
    """
    found: list[mttp.study.Diagnosis] = []
    callback = make(every=3, on_diagnosis=found.append)

    with mttp.configure("memory://"):
        play(hacks=True)
        stopped = [stops(callback) for _ in range(3)]

    assert [False, False, True] == stopped
    assert ["reward_hacking"] == [one.findings[0].kind for one in found]
    assert callback.is_ready


@pytest.mark.parametrize(("make", "stops"), CALLBACKS)
def test_a_healthy_run_goes_on(make: Any, stops: Any) -> None:
    """
    It is diagnosed all the same.
    """
    found: list[mttp.study.Diagnosis] = []
    callback = make(every=1, on_diagnosis=found.append)

    with mttp.configure("memory://"):
        play(hacks=False)

        assert not stops(callback)
    assert 1 == len(found)


@pytest.mark.parametrize(("make", "stops"), CALLBACKS)
def test_a_failing_diagnosis_stops_nothing(make: Any, stops: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    It is logged once; here the recording holds no episodes, and the quality is unknown.
    """
    callback = make(every=1, quality="metrics.nothing")

    with caplog.at_level(logging.WARNING, "mttp"), mttp.configure("memory://"):
        assert [False, False] == [stops(callback), stops(callback)]
        play(hacks=True, episodes=20)
        assert not stops(callback)

    assert 1 == caplog.text.count("the run could not be diagnosed, and goes on")


@pytest.mark.parametrize(("make", "stops"), CALLBACKS)
def test_without_a_session_nothing_is_diagnosed(make: Any, stops: Any) -> None:
    """
    Nothing is recorded, so nothing stops.
    """
    assert not stops(make(every=1))


def test_a_wrong_interval_is_an_error() -> None:
    """
    When the callback is made.
    """
    with pytest.raises(ValueError, match="give a number of updates from 1 on"):
        stopping.trl_callback(every=0)
