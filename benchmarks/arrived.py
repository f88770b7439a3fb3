"""
What arrived of recorded chat episodes: how many steps, and whether they are what was recorded.

Episodes, steps and calls of the beginning and of the end are compared value by value.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from chat import ENV, POLICY, WEIGHTS, Chat, Step, chats, facts
from recorders import LOCAL
from sink import received

__all__ = ["own_arrived", "sdk_file_arrived", "sink_arrived"]

SAMPLE = 256
"""Number of spans that are compared, at the beginning and at the end."""


class _Expected:
    """Compares what arrived with what was recorded."""

    def __init__(self) -> None:
        self._chats = chats(lists=True)
        self._steps = {tuple(step.ids): step for chat in self._chats for step in chat.steps}
        self._queries = {
            step.tool.arguments["query"]: step.tool for step in self._steps.values() if step.tool
        }
        self.compared = {"steps": 0, "tools": 0, "episodes": 0}

    def step(self, found: Step) -> None:
        expected = self._steps[tuple(found.ids)]
        assert facts(expected._replace(tool=None)) == facts(found._replace(tool=None)), found
        self.compared["steps"] += 1

    def tool(self, name: str, arguments: dict[str, Any], number: str, result: str) -> None:
        assert self._queries[arguments["query"]] == (name, arguments, number, result), arguments
        self.compared["tools"] += 1

    def episode(self, facts: Mapping[str, Any], *, length: int = 8) -> None:
        number = int(facts["seed"])
        reward = Chat(number, self._chats[number % len(self._chats)].steps).steps[-1].reward
        assert {
            "env": ENV,
            "task": f"chat/{number}",
            "policy": POLICY,
            "policy.version": str(number // 1000),
            "terminated": True,
            "outcome": "success",
            "length": length,
            "return": reward,
        } == {name: value for name, value in facts.items() if name in _EPISODE}, facts
        self.compared["episodes"] += 1

    def enough(self) -> None:
        assert all(self.compared.values()), f"too little to compare: {self.compared}"


_EPISODE = frozenset({"env", "task", "policy", "policy.version", "terminated", "outcome", "length", "return"})


# mttp's file.


def own_arrived() -> int:
    """Return the number of steps in a file of mttp."""
    import mttp

    path, expected = Path(f"{LOCAL}.jsonl"), _Expected()
    with path.open("rb") as file:
        first = list(islice(file, 4))
        last = list(deque(file, 4))
    part = Path("part.jsonl")
    part.write_bytes(b"".join([*first, *last]))
    for episode in mttp.read(part).episodes:
        if episode.complete and len(episode.steps) == 8:
            _compare(expected, episode)
    expected.enough()
    return int(sum(mttp.summarize(path).lengths))


def _compare(expected: _Expected, episode: Any) -> None:
    for step in episode.steps:
        scores = [dict(each.components) for each in step.rewards]
        assert all(dict(each.weights) == WEIGHTS for each in step.rewards)
        tokens = step.tokens
        found = Step(
            list(step.observation), step.action, tokens.ids.tolist(), tokens.logprobs, None, *(scores or [{}])
        )
        expected.step(found)
        assert not scores or step.reward == found.reward
        for call in step.calls:
            expected.tool(call.name, dict(call.arguments), call.id, call.result)
    facts = {
        "env": episode.env,
        "task": episode.task,
        "policy": episode.policy,
        "policy.version": episode.policy_version_start,
        "seed": episode.seed,
        "terminated": episode.terminated,
        "outcome": episode.outcome,
        "length": episode.length,
        "return": episode.return_,
    }
    expected.episode(facts)


# Others' spans: a name, and attributes.

_Span = tuple[str, dict[str, Any]]


def sdk_file_arrived() -> int:
    """Return the number of steps in the SDK's file of JSON lines."""
    return _count(_documents(Path(f"{LOCAL}.jsonl")), _plain)


def sink_arrived(by: str = "sdk") -> int:
    """Return the number of steps in a receiver's file, sent by the SDK or another library."""
    read = {"sdk": _plain, "mlflow": _mlflow, "langfuse": _langfuse}[by]
    return _count(((span.name, span) for span in received(LOCAL)), lambda span: read(_messages(span)))


def _count(spans: Iterable[tuple[str, Any]], read: Callable[[Any], dict[str, Any]]) -> int:
    expected, ahead, last = _Expected(), 0, deque[tuple[str, Any]](maxlen=SAMPLE)
    steps = 0
    for name, span in spans:
        steps += name == "step"
        if ahead < SAMPLE:
            _span(expected, name, read(span))
            ahead += 1
        else:
            last.append((name, span))
    for name, span in last:
        _span(expected, name, read(span))
    expected.enough()
    return steps


def _span(expected: _Expected, name: str, said: dict[str, Any]) -> None:
    if name == "episode":
        expected.episode(said)
    elif name == "step":
        scores = {each: said[f"score.{each}"] for each in WEIGHTS if f"score.{each}" in said}
        found = Step(said["observation"], said["action"], said["ids"], said["logprobs"], None, scores)
        expected.step(found)
        weights = {each: said[f"weight.{each}"] for each in WEIGHTS if f"weight.{each}" in said}
        assert (weights, said.get("reward")) == ((WEIGHTS, found.reward) if scores else ({}, None)), said
    else:
        expected.tool(said["name"], said["arguments"], said["id"], said["result"])


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            for block in msgspec.json.decode(line)["resourceSpans"]:
                for scoped in block["scopeSpans"]:
                    for span in scoped["spans"]:
                        yield span["name"], span["attributes"]


def _messages(span: Any) -> list[dict[str, Any]]:
    """Return the attributes of a protobuf message as plain data."""
    from google.protobuf.json_format import MessageToDict

    found: list[dict[str, Any]] = MessageToDict(span)["attributes"]
    return [*found, {"key": "span", "value": {"stringValue": span.name}}]


def _value(value: dict[str, Any]) -> Any:
    ((kind, found),) = value.items()
    if kind == "arrayValue":
        return [_value(each) for each in found["values"]]
    return int(found) if kind == "intValue" else found


def _plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the values that the SDK recorded."""
    said = {pair["key"]: _value(pair["value"]) for pair in attributes}
    for name in ("observation", "arguments"):
        if name in said:
            said[name] = json.loads(said[name])
    return said


def _texts(attributes: list[dict[str, Any]], prefix: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that a library recorded as JSON."""
    said = {}
    for pair in attributes:
        name, value = pair["key"].removeprefix(prefix), _value(pair["value"])
        try:
            said[names.get(name, name)] = json.loads(value)
        except (TypeError, ValueError):
            said[names.get(name, name)] = value
    return said


def _mlflow(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    said = _texts(attributes, "", {"mlflow.spanInputs": "input", "mlflow.spanOutputs": "output"})
    return _renamed(said)


def _langfuse(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    names = {f"langfuse.observation.{name}": name for name in ("input", "output")}
    return _renamed(_texts(attributes, "langfuse.observation.metadata.", names))


def _renamed(said: dict[str, Any]) -> dict[str, Any]:
    is_step = said["span"] == "step"
    said["observation" if is_step else "arguments"] = said.get("input")
    said["action" if is_step else "result"] = said.get("output")
    return {"name": said["span"], **said}
