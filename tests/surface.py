"""A table of every call of a training loop, each with valid arguments; none of them may raise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from opentelemetry.trace import Span, SpanContext, Status, StatusCode

import mttp
from mttp.recording.open_call import OpenCall

__all__ = ["BLOCKING", "CALLS", "Scene", "calls"]

FUNCTIONS = (
    *("episode", "step", "current_episode", "current_step", "current_session"),
    *("inject", "extract", "bind_context", "group", "update", "score", "annotate", "prefer"),
)
"""Functions for recording; set-up, such as `configure`, may raise and is not here."""
HANDLES: Mapping[str, type] = {
    "session": mttp.Session,
    "episode": mttp.recording.OpenEpisode,
    "agent": mttp.recording.OpenAgent,
    "step": mttp.recording.OpenStep,
    "call": OpenCall,
    "part": mttp.recording.RemoteEpisode,
    "group": mttp.recording.OpenGroup,
    "span": Span,
}
"""The types of handles."""
BLOCKING = {f"session.{name}" for name in ("flush", "abort", "close", "__exit__", "__aexit__")}
"""Calls that wait until spans are written."""
BLOCK = ("__enter__", "__exit__", "__aenter__", "__aexit__")
READING = {"records"}
"""Methods for reading, which may raise."""


def calls() -> set[str]:
    """Every call of the surface, as `name` or `handle.name`."""
    found = set(FUNCTIONS)
    for handle, kind in HANDLES.items():
        methods = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
        found |= {f"{handle}.{name}" for name in methods - READING}
        found |= {f"{handle}.{name}" for name in BLOCK if hasattr(kind, name)}
    return found


class Scene:
    """A session with a current step, and a handle of each kind."""

    def __init__(self, session: mttp.Session) -> None:
        self.session = session
        self.episode = mttp.episode(env="a", group="g")
        self.agent = self.episode.agent("white")
        self.outer = self.episode.__enter__()
        self.step = mttp.step()
        self.step.__enter__()
        self.call = self.step.model_call("m")
        self.tool = self.step.tool_call("t")
        self.group = mttp.group(size=3)
        self.carrier = mttp.inject()
        self.part = mttp.extract(self.carrier)
        self.span = self.step.span
        self.other = mttp.episode(env="b")
        self.block: dict[str, Any] = {}

    def close(self) -> None:
        """End all handles, including those that the call has ended."""
        for handle in (self.part, self.step, self.episode):
            with suppress(Exception):
                handle.__exit__(None, None, None)
        for handle in (self.call, self.tool, self.agent, self.other, self.group):
            with suppress(Exception):
                handle.end()


def _numbers() -> Any:
    return np.arange(4)


def _context() -> SpanContext:
    return SpanContext(1, 2, is_remote=True)


def _awaited(coroutine: Any) -> None:
    """Run a coroutine that does not suspend."""
    with suppress(StopIteration):
        coroutine.send(None)


def _of_session() -> dict[str, Callable[[Scene], object]]:
    value = mttp.Episode(env="a", steps=(mttp.Step(reward=1.0),))
    return {
        "session.episode": lambda at: at.session.episode(env="c"),
        "session.record": lambda at: at.session.record(value),
        "session.describe": lambda at: at.session.describe(algorithm="grpo", config={"a": 1}),
        "session.flush": lambda at: at.session.flush(5.0),
        "session.__enter__": lambda at: at.session.__enter__(),
        "session.__aenter__": lambda at: _awaited(at.session.__aenter__()),
        "session.abort": lambda at: at.session.abort(),
        "session.close": lambda at: at.session.close(),
        "session.__exit__": lambda at: at.session.__exit__(None, None, None),
        "session.__aexit__": lambda at: _awaited(at.session.__aexit__(None, None, None)),
    }


def _of_all(name: str) -> dict[str, Callable[[Scene], object]]:
    """Return the calls of a handle's block."""
    return {
        f"{name}.__enter__": lambda at: getattr(at, name).__enter__(),
        f"{name}.__exit__": lambda at: getattr(at, name).__exit__(None, None, None),
        f"{name}.__aenter__": lambda at: _awaited(getattr(at, name).__aenter__()),
        f"{name}.__aexit__": lambda at: _awaited(getattr(at, name).__aexit__(None, None, None)),
    }


def _of_measured(name: str) -> dict[str, Callable[[Scene], object]]:
    """Return the calls of a handle with metrics and metadata."""
    return {
        f"{name}.metric": lambda at: getattr(at, name).metric("speed", 1.5),
        f"{name}.set_metadata": lambda at: getattr(at, name).set_metadata("note", {"a": [1, 2]}),
        f"{name}.end": lambda at: getattr(at, name).end(),
    }


def _of_trajectory(name: str) -> dict[str, Callable[[Scene], object]]:
    """Return the calls of a handle with steps."""
    return {
        f"{name}.step": lambda at: getattr(at, name).step(),
        f"{name}.tool_call": lambda at: getattr(at, name).tool_call("t", arguments={"a": 1}, id="1"),
        f"{name}.agent": lambda at: getattr(at, name).agent("black", policy="p"),
        f"{name}.reward": lambda at: getattr(at, name).reward(components={"a": 1.0, "b": 2.0}),
        f"{name}.final_observation": lambda at: getattr(at, name).final_observation(_numbers()),
    }


CALLS: Mapping[str, Callable[[Scene], object]] = {
    "episode": lambda at: mttp.episode(env="c", seed=1, slices=["x"], metadata={"a": 1}),
    "step": lambda at: mttp.step(),
    "current_episode": lambda at: mttp.current_episode(),
    "current_step": lambda at: mttp.current_step(),
    "current_session": lambda at: mttp.current_session(),
    "inject": lambda at: mttp.inject(),
    "extract": lambda at: mttp.extract(at.carrier),
    "bind_context": lambda at: mttp.recording.bind_context(len),
    "group": lambda at: mttp.group("g1", [at.episode], rewards=[1.0], metrics={"a": 1.0}),
    "update": lambda at: mttp.update(loss=1.0, episodes=[at.episode], metrics={"a": 1.0}),
    "score": lambda at: mttp.score(at.episode, 1.0, grader="g", components={"a": 1.0}),
    "annotate": lambda at: mttp.annotate(at.episode, "note", {"a": [1, 2]}),
    "prefer": lambda at: mttp.prefer(at.episode, at.other),
    **{
        key: call
        for name in HANDLES
        if name not in ("session", "span")
        for key, call in _of_all(name).items()
    },
    **{
        key: call
        for name in ("episode", "agent", "step", "part", "group")
        for key, call in _of_measured(name).items()
    },
    **{key: call for name in ("episode", "agent", "part") for key, call in _of_trajectory(name).items()},
    "episode.set_inputs": lambda at: at.episode.set_inputs({"a": 1}, final=[1, 2]),
    "part.set_inputs": lambda at: at.part.set_inputs(final=[1, 2]),
    "step.tokens": lambda at: at.step.tokens(_numbers(), logprobs=[-0.5] * 4),
    "step.reward": lambda at: at.step.reward(1.0, components={"a": 1.0}),
    "step.observation": lambda at: at.step.observation(_numbers()),
    "step.action": lambda at: at.step.action({"move": 1}),
    "step.record": lambda at: at.step.record(advantage=1.0, terminated=True),
    "step.model_call": lambda at: at.step.model_call("m", temperature=0.5),
    "step.tool_call": lambda at: at.step.tool_call("t", arguments={"a": 1}),
    "call.response": lambda at: at.call.response(model="m", input_tokens=1),
    "call.result": lambda at: at.call.result([1, 2]),
    "call.end": lambda at: at.call.end(),
    "group.add": lambda at: at.group.add(at.other, reward=1.0),
    "span.set_attribute": lambda at: at.span.set_attribute("mine", [1.0, 2.0]),
    "span.set_attributes": lambda at: at.span.set_attributes({"mine": 1, "own": "x"}),
    "span.add_event": lambda at: at.span.add_event("said", {"a": 1}),
    "span.add_link": lambda at: at.span.add_link(_context(), {"a": 1}),
    "span.update_name": lambda at: at.span.update_name("mine"),
    "span.set_status": lambda at: at.span.set_status(Status(StatusCode.ERROR, "broken")),
    "span.record_exception": lambda at: at.span.record_exception(ValueError("x")),
    "span.get_span_context": lambda at: at.span.get_span_context(),
    "span.is_recording": lambda at: at.span.is_recording(),
    "span.end": lambda at: at.span.end(),
    "span.__enter__": lambda at: at.span.__enter__(),
    "span.__exit__": lambda at: at.span.__exit__(None, None, None),
    **_of_session(),
}
CALLS = {
    name: call for name, call in CALLS.items() if name != "agent.agent" and name != "agent.final_observation"
}
