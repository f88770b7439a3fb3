"""Awkward values in each argument of each recording call, and in each field of each finished value."""

from __future__ import annotations

import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from awkward import AWKWARD

import mttp
from mttp.errors import MttpError
from mttp.model.spans import SpanRecord
from mttp.model.values import same
from mttp.recording.arguments import EpisodeFacts, ScoreFacts, ScoringFacts, TokenFacts
from mttp.recording.open_call import OpenCall
from mttp.semconv import attributes as a
from mttp.workflows.evaluating.open_evaluation import OpenEvaluation

ABSENT = {"None", "nothing was given"}
"""Values that say that nothing is given."""
SPEC = mttp.model.Spec(name="spec")
CALL = mttp.model.Call(
    operation="chat", name="m", parameters={"temperature": 0.5}, arguments=[1], result="x", input_tokens=3
)
TOOL = mttp.model.Call(operation="execute_tool", name="t", id="1", arguments={"a": 1}, result=[1])
GRADE = mttp.model.Grade(
    name="format", kind="check", value=1.0, weight=1.0, range=(0.0, 1.0), evidence={"a": 1}
)
REWARD = mttp.model.Reward(
    value=1.0,
    components={"format": 1.0},
    weights={"format": 1.0},
    range=(0.0, 1.0),
    failed_checks=("a",),
    spec=SPEC,
    grades=(GRADE,),
    calls=(CALL,),
    label="good",
)
TOKENS = mttp.model.Tokens(ids=[1, 2], logprobs=[-0.5, -0.5], prompt_ids=[7], tokenizer="t", parent=(0, 1))
STEP = mttp.Step(
    index=0,
    observation="look",
    action="go",
    reward=0.25,
    advantage=1.0,
    metrics={"speed": 1.0},
    metadata={"note": "a"},
    calls=(CALL, TOOL),
    tokens=TOKENS,
    rewards=(REWARD,),
)
AGENT = mttp.model.Agent(
    id="white",
    name="White",
    length=1,
    metrics={"speed": 1.0},
    metadata={"note": "a"},
    reward=REWARD,
    return_=1.0,
)
EPISODE = mttp.Episode(
    env="chess",
    task="t",
    seed=3,
    slices=["x"],
    inputs={"answer": 1},
    steps=(STEP, mttp.Step(index=1, action="end"), mttp.Step(index=0, agent="white", action="e4")),
    agents=(AGENT,),
    reward=REWARD,
    final_observation="end",
    metrics={"speed": 1.0},
    metadata={"note": "a"},
    outcome="success",
    start_time=1_000,
    end_time=2_000,
)


UNSAID = {a.FAULTS, a.EPISODE_INDEX}
"""Attributes that are no part of what a span says."""


class Scene:
    """An open episode with a step, an agent and calls, and a group."""

    def __init__(self, number: int) -> None:
        self.episode = mttp.episode(env="chess", task="t", seed=3, metadata={"kept": 1})
        self.agent = self.episode.agent("white", name="White")
        self.agent_step = self.agent.step()
        self.agent_step.action("e4")
        self.step = self.episode.step()
        self.step.observation("look")
        self.step.action("go")
        self.step.tokens([1, 2], logprobs=[-0.5, -0.5])
        self.model = self.step.model_call("m", temperature=0.5)
        self.call = self.step.tool_call("t", arguments={"a": 1})
        self.group = mttp.group(f"group {number}")

    def close(self) -> str:
        """End everything as a program does, and return the trace id."""
        self.model.response(model="m2", input_tokens=3)
        self.step.end()
        with self.episode.step() as step:
            step.action("end")
        self.episode.reward(1.0)
        self.agent.end()
        self.episode.end()
        self.group.end()
        return self.episode.trace_id


PARAMETERS = dict.fromkeys(("temperature", "top_p", "top_k", "max_tokens", "seed"))
NAMED: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any], Mapping[str, object]]] = {
    "step.observation": (mttp.recording.OpenStep.observation, {"value": "look"}, {}),
    "step.action": (mttp.recording.OpenStep.action, {"value": "go"}, {}),
    "step.tokens": (mttp.recording.OpenStep.tokens, {"ids": [1, 2]}, TokenFacts.__annotations__),
    "step.reward": (mttp.recording.OpenStep.reward, {}, ScoringFacts.__annotations__),
    "step.record": (mttp.recording.OpenStep.record, {}, {}),
    "step.metric": (mttp.recording.OpenStep.metric, {"name": "speed", "value": 1.0}, {}),
    "step.set_metadata": (mttp.recording.OpenStep.set_metadata, {"name": "note", "value": 1}, {}),
    "step.model_call": (mttp.recording.OpenStep.model_call, {}, PARAMETERS),
    "step.tool_call": (mttp.recording.OpenStep.tool_call, {"name": "t"}, {}),
    "step.end": (mttp.recording.OpenStep.end, {}, {}),
    "call.result": (OpenCall.result, {"value": 1}, {}),
    "model.response": (OpenCall.response, {}, {}),
    "agent.reward": (mttp.recording.OpenAgent.reward, {}, ScoreFacts.__annotations__),
    "agent.metric": (mttp.recording.OpenAgent.metric, {"name": "speed", "value": 1.0}, {}),
    "agent.set_metadata": (mttp.recording.OpenAgent.set_metadata, {"name": "note", "value": 1}, {}),
    "agent.step": (mttp.recording.OpenAgent.step, {}, {}),
    "agent.end": (mttp.recording.OpenAgent.end, {}, {}),
    "episode.agent": (mttp.recording.OpenEpisode.agent, {"id": "black"}, {}),
    "episode.step": (mttp.recording.OpenEpisode.step, {}, {}),
    "episode.reward": (mttp.recording.OpenEpisode.reward, {}, ScoreFacts.__annotations__),
    "episode.metric": (mttp.recording.OpenEpisode.metric, {"name": "speed", "value": 1.0}, {}),
    "episode.set_metadata": (mttp.recording.OpenEpisode.set_metadata, {"name": "note", "value": 1}, {}),
    "episode.final_observation": (mttp.recording.OpenEpisode.final_observation, {"value": 1}, {}),
    "episode.set_inputs": (mttp.recording.OpenEpisode.set_inputs, {}, {"final": None}),
    "group.add": (mttp.recording.OpenGroup.add, {"episode": "0" * 31 + "1"}, {}),
    "group.metric": (mttp.recording.OpenGroup.metric, {"name": "speed", "value": 1.0}, {}),
    "group.set_metadata": (mttp.recording.OpenGroup.set_metadata, {"name": "note", "value": 1}, {}),
    "mttp.episode": (mttp.episode, {}, EpisodeFacts.__annotations__),
    "mttp.group": (mttp.group, {}, {}),
    "mttp.update": (mttp.update, {}, {}),
    "mttp.score": (mttp.score, {"target": "0" * 31 + "1", "value": 1.0}, ScoreFacts.__annotations__),
    "mttp.annotate": (mttp.annotate, {"target": "0" * 31 + "1", "key": "note", "value": 1}, {}),
    "mttp.prefer": (mttp.prefer, {"chosen": "0" * 31 + "1", "rejected": "0" * 31 + "2"}, {}),
}
"""For each call its signature, its required arguments, and the names behind `**`."""
TOUCHED = {
    "step.observation": "observation|omissions",
    "step.action": "action|omissions",
    "step.tokens": "tokens",
    "step.reward": "reward|rewards|reward_status|reward_raw|step_reward_sum",
    "step.metric": "metrics",
    "step.set_metadata": "metadata",
    "step.model_call": "calls",
    "step.tool_call": "calls",
    "call.result": "calls",
    "model.response": "calls",
    "agent.reward": "agents",
    "agent.metric": "agents",
    "agent.set_metadata": "agents",
    "agent.step": "agents|steps|step_count|length",
    "agent.end": "agents",
    "episode.agent": "agents",
    "episode.step": "steps|step_count|length",
    "episode.reward": "reward|rewards",
    "episode.metric": "metrics",
    "episode.set_metadata": "metadata",
    "episode.final_observation": "final_observation|omissions",
    "episode.set_inputs": "inputs",
    "step.end": "calls|steps",
}
"""The fields that a call may change."""


def arguments() -> list[tuple[str, str]]:
    """Return every argument of every call, as (call, argument)."""
    found = []
    for call, (function, _, more) in NAMED.items():
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        named = [p.name for p in inspect.signature(function).parameters.values() if p.kind not in kinds]
        found += [(call, name) for name in (*named, *more) if name != "self"]
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the compared fields of a value by path."""
    if is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            if item.compare and item.name not in ("faults", "trace_id", "id", "run_id", "index"):
                yield from leaves(getattr(value, item.name), f"{path}.{item.name}" if path else item.name)
    elif isinstance(value, tuple):
        yield f"{path}.count", len(value)
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}.{place}")
    else:
        yield path, value


def some(place: int) -> list[tuple[str, Callable[[], Any]]]:
    """Return a part of the values, another one for each place; all of them in `make fuzz`."""
    every = 1 if "MTTP_ALL_VALUES" in os.environ else 24
    return list(AWKWARD.items())[place % every :: every]


def changed(episode: mttp.Episode, usual: mttp.Episode) -> set[str]:
    """Return the paths of fields that differ."""
    if episode == usual:
        return set()
    ours, theirs = dict(leaves(episode)), dict(leaves(usual))
    return {
        path
        for path in ours.keys() | theirs.keys()
        if path not in ours or path not in theirs or not same(ours[path], theirs[path])
    }


def is_touched(path: str, names: str) -> bool:
    """Return whether one of the fields is in the path."""
    return any(name in path.split(".") for name in names.split("|"))


def recorded_faults(session: mttp.Session) -> dict[str, list[str]]:
    """Return the recorded faults by trace."""
    found: dict[str, list[str]] = {}
    for record in session.records():
        found.setdefault(record.trace_id, []).extend(record.attributes.get(a.FAULTS) or ())
    return found


def done(scene: Scene, call: str, given: Mapping[str, Any]) -> None:
    """Do one call of a scene, and end what it opens."""
    handle, _, method = call.partition(".")
    function = getattr(mttp, method) if handle == "mttp" else getattr(getattr(scene, handle), method)
    opened = function(**given)
    if hasattr(opened, "end"):
        opened.end()


def said(spans: Iterable[SpanRecord]) -> Counter[str]:
    """Return what spans say, but for their faults, and for numbers, ids and names of groups, which differ."""
    texts = (
        repr([span.name, {key: value for key, value in span.attributes.items() if key not in UNSAID}])
        for span in spans
    )
    return Counter(re.sub(r"[0-9a-f]{16,32}|group \d+", "*", text) for text in texts)


def assert_sound(session: mttp.Session) -> None:
    """Assert that nothing failed within the recorder, and that the recording conforms."""
    assert "internal_error" not in session.stats.faults, session.stats.faults
    assert not [str(one) for one in mttp.check(session) if one.level == "violation"]


@pytest.mark.parametrize(
    ("place", "call", "argument"), [(place, *names) for place, names in enumerate(arguments())]
)
def test_an_argument_costs_only_itself(place: int, call: str, argument: str) -> None:
    """
    An awkward argument is converted, or missing with a fault; the episode and all other values are kept.
    """
    names = TOUCHED.get(call, "")
    required = NAMED[call][1]
    calls = dict(some(place))
    traces, spans = {}, {}
    with mttp.configure("memory://", provenance=False) as session:
        Scene(0).close()  # with the spans that a run has once
        for number, name in enumerate(("", *calls), start=1):
            scene, before = Scene(number), sum(1 for _ in session.records())
            if name:
                done(scene, call, {**required, argument: calls[name]()})
            elif argument not in required:
                done(scene, call, required)
            traces[name] = scene.close()
            spans[name] = list(session.records())[before:]
    usual = traces.pop("")
    episodes = {episode.trace_id: episode for episode in mttp.read(session).episodes}
    for name, trace in traces.items():
        episode = episodes[trace]
        assert (episode.status, episode.complete, episode.outcome) == ("completed", True, "unknown"), name
        wrong = {
            path for path in changed(episode, episodes[usual]) if not is_touched(path, f"{names}|{argument}")
        }
        assert not wrong, (name, wrong)
        faults = [fault for span in spans[name] for fault in span.attributes.get(a.FAULTS) or ()]
        is_taken = name in ABSENT or said(spans[name]) != said(spans[""])
        assert is_taken or any(argument in fault for fault in faults), (name, faults, session.stats.faults)
    assert_sound(session)


VALUES = {"Episode": EPISODE, "Agent": AGENT, "Step": STEP, "Reward": REWARD, "Grade": GRADE, "Spec": SPEC}
VALUES |= {"Call": CALL, "Tool": TOOL, "Tokens": TOKENS}
PLACES: Mapping[str, Callable[[Any], mttp.Episode]] = {
    "Episode": lambda value: value,
    "Agent": lambda value: replace(EPISODE, agents=(value,)),
    "Step": lambda value: replace(EPISODE, steps=(value, *EPISODE.steps[1:])),
    "Reward": lambda value: replace(EPISODE, reward=value),
    "Grade": lambda value: replace(EPISODE, reward=replace(REWARD, grades=(value,))),
    "Spec": lambda value: replace(EPISODE, reward=replace(REWARD, spec=value)),
    "Call": lambda value: replace(EPISODE, steps=(replace(STEP, calls=(value, TOOL)), *EPISODE.steps[1:])),
    "Tool": lambda value: replace(EPISODE, steps=(replace(STEP, calls=(CALL, value)), *EPISODE.steps[1:])),
    "Tokens": lambda value: replace(EPISODE, steps=(replace(STEP, tokens=value), *EPISODE.steps[1:])),
}
RELATED = {
    "start_time": "calls",
    "end_time": "calls",
    "reward": "reward|rewards|reward_raw|reward_status|return_|step_reward_sum|return_basis",
    "rewards": "reward|return_|return_basis",
    "value": "reward|rewards|return_|return_basis|agents",
    "status": "reward|rewards|return_|return_basis",
    "steps": "step_count|length|step_reward_sum|agents",
    "agents": "agents|steps",
    "agent": "steps|agents|step_count|length|step_reward_sum|return_",
    "components": "reward|rewards",
    "weights": "reward|rewards",
    "component_statuses": "reward|rewards",
    "grades": "reward|rewards",
    "name": "reward|rewards|calls|spec",
    "kind": "grades",
    "weight": "weights|components",
    "operation": "calls",
    "error_type": "error_message",
    "return_": "return_basis",
    "reward_status": "reward|step_reward_sum|return_|return_basis",
    "index": "steps",
    "spec": "reward|rewards",
    "ids": "tokens",
    "alignment": "tokens",
    "count": "tokens",
    "id": "agents|steps",
    "parent": "tokens",
    "extra": "extra",
    "trace_id": "trace_id",
}
"""Fields that follow from others."""


FIELDS = [(kind, item.name) for kind in VALUES for item in fields(VALUES[kind])]


@pytest.mark.parametrize(("place", "kind", "field"), [(place, *names) for place, names in enumerate(FIELDS)])
def test_a_field_costs_only_itself(place: int, kind: str, field: str) -> None:
    """
    An awkward field of a finished value is converted, or missing with a fault; all other fields are kept.
    """
    traces = {}
    with mttp.configure("memory://", provenance=False) as session:
        usual = session.record(EPISODE).trace_id
        for name, factory in some(place):
            try:
                value = replace(VALUES[kind], **{field: factory()})
            except Exception:
                assert kind == "Tokens", name  # its arrays are checked when it is made
                continue
            traces[name] = session.record(PLACES[kind](value)).trace_id
    episodes = {episode.trace_id: episode for episode in mttp.read(session).episodes}
    faults = recorded_faults(session)
    names = f"{field}|{RELATED.get(field, '')}"
    for name, trace in traces.items():
        episode = episodes[trace]
        assert episode.complete, name
        if (kind, field) != ("Episode", "status"):
            assert episode.status == "completed", name
        names = "tokens" if kind == "Tokens" else names
        differing = changed(episode, episodes[usual])
        assert not {path for path in differing if not is_touched(path, names)}, name
        values = dict(leaves(episode))
        lost = [path for path in differing if field in path.split(".") and values.get(path) is None]
        assert name in ABSENT or not lost or faults.get(trace), (name, lost)
    assert_sound(session)


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters without `self`."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize(("place", "argument"), [*enumerate(parameters(mttp.evaluate))])
def test_an_argument_of_an_evaluation_is_taken_or_an_error(place: int, argument: str) -> None:
    """
    Set-up fails with an error of mttp; the session goes on, and a later evaluation is whole.
    """
    usual: dict[str, Any] = {"suite": "sums", "tasks": ["a", "b"], "progress": False}
    with mttp.configure("memory://", provenance=False) as session:
        for _, factory in some(place):
            with suppress(MttpError), mttp.evaluate(**{**usual, argument: factory()}) as run:
                run.result("a", 1.0)
        with mttp.evaluate(**usual) as run:
            run.result("a", 1.0)
    assert [("a", 1.0)] == [(one.task, one.score) for one in mttp.read(session).evals[-1].results]
    assert_sound(session)


OPEN_EVALUATION = {
    "result": (OpenEvaluation.result, {"task": "a", "score": 1.0}),
    "metric": (OpenEvaluation.metric, {"name": "speed", "value": 1.0}),
}
EVALUATING = [
    (call, name) for call, (function, _) in OPEN_EVALUATION.items() for name in parameters(function)
]


@pytest.mark.parametrize(
    ("place", "call", "argument"), [(place, *one) for place, one in enumerate(EVALUATING)]
)
def test_an_argument_within_an_evaluation_costs_only_itself(place: int, call: str, argument: str) -> None:
    """
    The other results are kept, and the evaluation is completed.
    """
    with mttp.configure("memory://", provenance=False) as session:
        for _, factory in some(place):
            with mttp.evaluate("sums", tasks=["a", "b"], progress=False) as run:
                getattr(run, call)(**{**OPEN_EVALUATION[call][1], argument: factory()})
                run.result("b", 0.5)
    for evaluation in mttp.read(session).evals:
        assert "completed" == evaluation.status
        assert ("b", 0.5) in [(one.task, one.score) for one in evaluation.results]
    assert_sound(session)


@pytest.mark.parametrize(("place", "argument"), [*enumerate(parameters(mttp.Session.describe))])
def test_a_fact_about_a_run_costs_only_itself(place: int, argument: str) -> None:
    """
    The other facts are kept.
    """
    other = "optimizer" if argument == "algorithm" else "algorithm"
    for name, factory in some(place):
        with mttp.configure("memory://", provenance=False) as session:
            session.describe(**{other: "adam", argument: factory()})
            with mttp.episode():
                pass
        (run,) = mttp.read(session).runs
        assert "adam" == getattr(run, other), name
        assert_sound(session)


@pytest.mark.parametrize(("place", "argument"), [*enumerate(("start_time", "end_time", "timing"))])
def test_an_argument_of_a_finished_episode_costs_only_itself(place: int, argument: str) -> None:
    """
    All fields of the value but the times are kept, and a wrong argument is a fault.
    """
    with mttp.configure("memory://", provenance=False) as session:
        usual = session.record(EPISODE).trace_id
        traces = {
            name: session.record(EPISODE, **{argument: factory()}).trace_id for name, factory in some(place)
        }
    episodes = {episode.trace_id: episode for episode in mttp.read(session).episodes}
    faults = recorded_faults(session)
    for name, trace in traces.items():
        differing = changed(episodes[trace], episodes[usual])
        assert not {path for path in differing if not is_touched(path, f"{argument}|start_time|end_time")}, (
            name
        )
        given, usual_one = getattr(episodes[trace], argument), getattr(episodes[usual], argument)
        is_taken = name in ABSENT or differing or given != usual_one
        word = argument.rpartition("_")[2]
        assert is_taken or any(word in fault for fault in faults[trace]), (name, faults[trace])
    assert_sound(session)
