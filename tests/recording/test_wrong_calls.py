"""Wrong calls of the recording interface, and the public names of its handles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from surface import CALLS, HANDLES, Scene

import mttp

FREE = {"step.model_call", "episode.set_inputs", "part.set_inputs", "update"}
"""Calls that take names of the user's own: sampling parameters, inputs, logged numbers."""
NAMED = [
    name
    for name in CALLS
    if name not in FREE and "__" not in name and not name.startswith(("span.", "current"))
]
ROOMS: dict[str, Callable[..., object]] = {"bind_context": mttp.recording.bind_context}
EPISODE = {
    *("agent", "agents", "end", "ended", "env", "final_observation", "group", "id", "inputs", "length"),
    *("metadata", "metric", "metrics", "outcome", "policy", "policy_update_index", "return_", "return_basis"),
    *("reward", "run_id", "seed", "set_inputs", "set_metadata", "slices", "span", "span_id"),
    *("status", "step"),
    *("step_reward_sum", "task", "terminated", "tool_call", "trace_id", "truncated"),
}
OFFERED: dict[str, set[str]] = {
    "session": {
        *(
            "abort",
            "close",
            "closed",
            "describe",
            "episode",
            "flush",
            "location",
            "record",
            "records",
            "run_id",
        ),
        *("run_name", "stats", "transport", "transports"),
    },
    "episode": EPISODE,
    "part": EPISODE | {"segment_id"},
    "step": {
        *("action", "end", "ended", "index", "metadata", "metric", "metrics", "model_call", "observation"),
        *("record", "reward", "set_metadata", "span", "span_id", "tokens", "tool_call"),
    },
    "agent": {
        *(
            "end",
            "ended",
            "id",
            "length",
            "metadata",
            "metric",
            "metrics",
            "return_",
            "return_basis",
            "reward",
        ),
        *("set_metadata", "span", "span_id", "step", "step_reward_sum", "terminated", "tool_call"),
        "truncated",
    },
    "group": {
        *("add", "end", "ended", "id", "members", "metadata", "metric", "metrics", "set_metadata", "span"),
        *("span_id", "value"),
    },
    "call": {"end", "ended", "response", "result", "span", "span_id"},
}


@pytest.fixture
def session() -> Iterator[mttp.Session]:
    """A session in memory."""
    with mttp.configure("memory://") as session:
        yield session


@pytest.fixture
def scene(session: mttp.Session) -> Iterator[Scene]:
    """A handle of each kind."""
    scene = Scene(session)
    yield scene
    scene.close()


def call_of(name: str, scene: Any) -> Callable[..., object]:
    handle, _, method = name.rpartition(".")
    if not handle:
        return ROOMS.get(name) or getattr(mttp, name)
    return getattr(getattr(scene, handle), method)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMED)
def test_an_unknown_argument_name_raises_type_error(scene: Scene, name: str) -> None:
    """
    It is a bug of the program; nothing is counted.
    """
    target = (scene.episode,) if name == "score" else ()
    with pytest.raises(TypeError, match="nonsense"):
        call_of(name, scene)(*target, nonsense=1)

    assert {} == dict(scene.session.stats.faults)


@pytest.mark.parametrize(
    "name", [name for name in NAMED if "." in name and name.partition(".")[0] != "session"]
)
def test_an_unknown_argument_name_raises_without_a_session(name: str) -> None:
    """
    A program that works without recording works with it.
    """
    session = mttp.configure("memory://")
    session.close()
    scene = Scene(session)
    with pytest.raises(TypeError, match="nonsense"):
        call_of(name, scene)(nonsense=1)
    scene.close()


def test_the_error_suggests_the_nearest_name(session: mttp.Session) -> None:
    """
    It does so for each call whose arguments are a typed dictionary.
    """
    with mttp.episode() as episode, episode.step() as step:
        with pytest.raises(TypeError, match=re.escape("'logprob'. Did you mean 'logprobs'?")):
            step.tokens([1], logprob=[-1.0])  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=re.escape("'component'. Did you mean 'components'?")):
            step.reward(1.0, component={})  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=re.escape("'polcy'. Did you mean 'policy'?")):
            mttp.episode(polcy="p")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=re.escape("'wieghts'. Did you mean 'weights'?")):
            episode.reward(1.0, wieghts={})  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=re.escape("'revison'. Did you mean 'revision'?")):
            mttp.score(episode, 1.0, revison=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=re.escape("'outcom'. Did you mean 'outcome'?")):
            episode.end(outcom="success")  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [object(), np.array([[1.0]]), "much", b"\xff", {1: {2: 3}}, float("nan")])
@pytest.mark.parametrize(
    "name", ["step.tokens", "step.reward", "episode.reward", "step.observation", "step.action"]
)
def test_a_wrong_value_never_raises(scene: Scene, name: str, value: object) -> None:
    """
    It is a fault, and the step continues.
    """
    call_of(name, scene)(value)
    scene.step.metric("after", 1)

    assert {"after": 1.0} == scene.step.metrics


@pytest.mark.parametrize("name", OFFERED)
def test_a_handle_has_only_documented_names(scene: Scene, name: str) -> None:
    """
    All other names have an underscore.
    """
    assert OFFERED[name] == {found for found in dir(getattr(scene, name)) if not found.startswith("_")}


def test_every_handle_is_pinned() -> None:
    """
    A new kind of handle must be added here.
    """
    assert set(HANDLES) - {"span"} == set(OFFERED)
