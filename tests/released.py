"""Makes the files of a release that later versions must read: `python tests/released.py 0.1.0`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mttp
from mttp.model.spans import SpanRecord
from mttp.otlp.json import encode_records
from mttp.otlp.protobuf import encode_request, encode_span
from mttp.otlp.protobuf_decode import decode_message
from mttp.rewards import locking
from mttp.study.rules import load_rules
from mttp.testing import OtlpReceiver, counting_ids

FOLDER = Path(__file__).parent / "data" / "released"
SPEC = """\
mttp: reward-spec/1
name: sums
version: 1.0.0
inputs: {completion: string, answer: string}
components:
  - {name: exact, kind: verifier, use: "released_graders:exact", weight: 1.0, range: [0, 1]}
combine: weighted_sum
cases:
  - {name: right, kind: valid, input: {completion: "4", answer: "4"}, expect: {value: 1.0}}
"""
GRADERS = '''\
"""The grader of the reward spec."""


def exact(completion, answer):
    """Compare the answer."""
    return float(completion == answer)
'''
RULES = """\
aggregate:
  - {metric: success, min: 0.5}
protected:
  - {by: split, metric: success, margin: 0.05}
"""


class Held:
    """Spans in memory, as a source of `mttp.read`."""

    def __init__(self, spans: list[SpanRecord]) -> None:
        self._spans = spans

    def records(self) -> list[SpanRecord]:
        """The spans."""
        return self._spans


def make(folder: Path) -> None:
    """Write every kind of file that mttp reads back."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with counting_ids():
        _record(f"file://{folder}/recording.jsonl")
    for name in ("recording.jsonl.gz", "recording.jsonl.zst", "recording.parquet", "recording.mttp.jsonl"):
        _run("convert", "recording.jsonl", name, folder=folder)
    with counting_ids():
        _collect(folder)
    with counting_ids():
        _evaluate(f"file://{folder}/evaluation.jsonl")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "released_graders.py").write_text(GRADERS, encoding="utf-8")
    _run("spec", "lock", "spec.yaml", folder=folder)
    (folder / "promotion.yaml").write_text(RULES, encoding="utf-8")
    found = summary(folder)
    rows = ",\n".join(f'"{name}": {json.dumps(read, ensure_ascii=False)}' for name, read in found.items())
    (folder / "expected.json").write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")


def _run(*arguments: str, folder: Path) -> None:
    command = [sys.executable, "-m", "mttp", *arguments]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _record(address: str) -> None:
    """An episode with everything, a packed one, a group, an update, and facts that came later."""
    import gymnasium
    from specimen import EVERYTHING

    facts = {"content": True, "token_ids": True, "provenance": False}  # nothing of the machine
    with mttp.configure(address, run="released", seed=7, config={"lr": 3e-4}, **facts) as session:
        session.record(EVERYTHING)
        env = mttp.wrap(gymnasium.make("CartPole-v1"))
        env.reset(seed=1)
        while not any(env.step(0)[2:4]):
            pass
        env.close()
        with mttp.group(size=2, normalization="mean_std", task="train/18") as group:
            for number in range(2):
                group.add(_answer(number, group))
        mttp.update(0, loss=0.5, policy_version_after="1", groups=[group], metrics={"clip": 0.25})
        mttp.annotate(group.value.episodes[0], "checked", True, by="reviewer")


def _answer(number: int, group: object) -> object:
    from opentelemetry import trace

    with mttp.episode(env="toy", task="train/18", seed=number, group=group) as episode:
        with episode.step() as step:
            step.observation("3+3=?")
            with trace.get_tracer("another.library").start_as_current_span("chat tiny") as call:
                call.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny"})
            step.action("6" if number else "7")
            step.tokens([1, 2, 3], logprobs=[-0.1, -0.2, -0.3])
        episode.reward(float(number), components={"exact": float(number)})
        episode.end(terminated=True, outcome="success" if number else "failure")
    return episode


def _collect(folder: Path) -> None:
    """What a collector receives: spans instead of columns, as protobuf and as OTLP JSON."""
    with OtlpReceiver() as receiver:
        _record(receiver.http_address)
        received = list(receiver.records())
    blocks = [(record.scope, [encode_span(record)]) for record in received]
    (folder / "collector.binpb").write_bytes(encode_request(blocks))
    (folder / "collector.jsonl").write_bytes(b"".join(encode_records(received)))


def _evaluate(address: str) -> None:
    tasks = [{"id": "a", "slices": ["easy"]}, {"id": "b"}, {"id": "c"}]
    outcomes: dict[str, Any] = {"a": 1.0, "b": (0.25, False), "c": None}
    with (
        mttp.configure(address, run="released", kind="eval", provenance=False),
        mttp.evaluate(
            suite="sums", suite_version="1", tasks=tasks, tags={"model": "tiny"}, concurrency=1
        ) as run,
    ):
        run.map(lambda task: outcomes[task["id"]])


def recordings(folder: Path, *names: str) -> dict[str, Any]:
    """What is read of each recording, or of those with these names, as JSON."""
    message = (folder / "collector.binpb").read_bytes()
    sources: dict[str, Any] = {
        path.name: path
        for path in sorted(folder.iterdir())
        if ".jsonl" in path.name or path.suffix == ".parquet"
    }
    sources["collector.binpb"] = Held(decode_message(message))
    found = {
        name: {**_of_recording(mttp.read(source)), "summary": _of_summary(mttp.summarize(source))}
        for name, source in sources.items()
        if name in (names or sources)
    }
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]  # what it is after a file


def summary(folder: Path) -> dict[str, Any]:
    """What is read of each file, as JSON."""
    found = recordings(folder)
    rules = load_rules(folder / "promotion.yaml")
    spec = mttp.RewardSpec.load(folder / "spec.yaml")
    scored = spec.score(completion="4", answer="4")
    lock = locking.read_lock(folder / "spec.yaml")
    found["promotion.yaml"] = {"aggregate": len(rules.aggregate), "protected": len(rules.protected)}
    found["spec.yaml"] = {"name": spec.name, "version": spec.version, "reward": scored.value}
    found["spec.yaml.lock"] = {"versions": lock.pins if lock else None}
    return found


def _of_recording(recording: mttp.Recording) -> dict[str, Any]:
    return {
        "problems": Counter(problem.kind for problem in recording.problems),
        "runs": [[run.name, run.seed, run.config] for run in recording.runs],
        "episodes": [_of_episode(episode) for episode in recording.episodes],
        "groups": [[len(group.episodes), list(group.rewards)] for group in recording.groups],
        "updates": [[update.index, update.metrics] for update in recording.updates],
        "annotations": [[one.kind, one.key, one.value, one.by] for one in recording.annotations],
        "evals": [
            [one.suite, one.status, [[result.task, result.outcome, result.score] for result in one.results]]
            for one in recording.evals
        ],
    }


def _of_summary(found: Any) -> dict[str, Any]:
    return {
        "outcomes": found.outcomes.counts(),
        "envs": found.envs.counts(),
        "faults": found.faults,
        "tokens": [found.prompt_tokens, found.completion_tokens],
        "problems": [problem.kind for problem in found.problems],
    }


def _of_episode(episode: mttp.Episode) -> dict[str, Any]:
    steps = episode.steps
    blocks = [step.tokens for step in steps if step.tokens is not None]
    ids = [block.ids.tolist() for block in blocks if block.ids is not None]
    return {
        "env": episode.env,
        "task": episode.task,
        "seed": episode.seed,
        "status": episode.status,
        "outcome": episode.outcome,
        "ends": [episode.terminated, episode.truncated],
        "return": episode.return_,
        "complete": episode.complete,
        "reward": [episode.reward.value, episode.reward.status, _first(episode.reward.components)],
        "rewards": [len(episode.rewards), sum(len(reward.grades) for reward in episode.rewards)],
        "steps": len(steps),
        "step_rewards": [step.reward for step in steps],
        "observations": [str(step.observation)[:60] for step in steps[:4]],
        "actions": [str(step.action)[:60] for step in steps[:4]],
        "token_ids": ids,
        "calls": [call.name for step in steps for call in step.calls],
        "agents": [agent.id for agent in episode.agents],
        "slices": list(episode.slices),
        "metadata": sorted(episode.metadata),
        "metrics": sorted(episode.metrics),
        "faults": list(episode.faults),
        "extra": sorted(episode.extra),
    }


def _first(components: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(components.items())[:3])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/released.py VERSION")
    make(FOLDER / sys.argv[1])
    print(*sorted(path.name for path in (FOLDER / sys.argv[1]).iterdir()), sep="\n")
