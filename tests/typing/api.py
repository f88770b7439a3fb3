"""Calls of the public surface, checked by mypy and pyright, and never run."""

from __future__ import annotations

import numpy as np

import mttp
from mttp import Episode, Recording, Reward, RewardSpec, Session, Step, Tokens
from mttp.mist import Receiver, Sender
from mttp.model import Agent, Call, Evaluation, Grade, Group, Run, Spec, TaskResult, Update
from mttp.recording import OpenAgent, OpenEpisode, OpenGroup, OpenStep, RemoteEpisode
from mttp.rewards import RewardResult, Score


def record() -> None:
    session: Session = mttp.configure("file://runs/a.jsonl", run="first", config={"lr": 1e-3})
    with session, mttp.episode(env="Maze-v0", task="7", seed=3, slices=["easy"]) as episode:
        open_episode: OpenEpisode = episode
        with episode.step() as step:
            open_step: OpenStep = step
            step.observation(np.zeros(4))
            step.action({"role": "assistant", "content": "north"})
            step.tokens([1, 2], logprobs=np.array([-0.1, -0.2]), prompt_ids=[5], policy_version="12")
            step.reward(1.0, components={"correct": 1.0}, weights={"correct": 1.0}, verdict="pass")
            with step.model_call("tiny", temperature=0.7) as call:
                call.response(model="tiny-1", input_tokens=10, output_tokens=2)
            step.end(terminated=True)
        agent: OpenAgent = episode.agent("white", policy="p")
        agent.end(advantage=0.5)
        episode.reward(np.float32(1.0), spec=Spec(name="maze"))
        episode.end(outcome="success", cost_usd=0.01)
    group: OpenGroup = mttp.group("g", [open_episode], rewards=[1.0])
    group.end()
    mttp.update(loss=0.1, episodes=[open_episode], kl=0.01)
    mttp.score(open_step, 0.5, grader="me")
    mttp.annotate(open_episode, "note", "odd")
    mttp.prefer(open_episode, open_episode, by="me")
    part: RemoteEpisode = mttp.extract(mttp.inject())
    part.end()


def record_wrongly(step: OpenStep) -> None:
    step.tokens([1], logprob=[-0.1])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    step.reward(1.0, component={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    step.reward("much")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    step.end(terminated="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mttp.episode(polcy="p")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    mttp.step(idx=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def read() -> None:
    recording: Recording = mttp.read("runs/a.jsonl")
    for episode in recording:
        value: Episode = episode
        total: float | None = value.return_
        reward: Reward = value.reward
        grades: tuple[Grade, ...] = reward.grades
        for step in value.steps:
            one: Step = step
            tokens: Tokens | None = one.tokens
            calls: tuple[Call, ...] = one.calls
            print(total, grades, tokens, calls)
        agents: tuple[Agent, ...] = value.agents
        print(agents)
    runs: list[Run] = list(recording.runs)
    groups: list[Group] = list(recording.groups)
    updates: list[Update] = list(recording.updates)
    evaluations: list[Evaluation] = list(recording.evals)
    print(runs, groups, updates, evaluations, mttp.summarize("runs/").returns.mean())
    print([finding.message for finding in mttp.check("runs/")])
    for span in mttp.scan("runs/"):
        print(span.trace_id, span.attributes)


@mttp.rewards.verifier
def correct(completion: str, answer: str) -> float:
    return float(completion == answer)


@mttp.rewards.check(name="short")
def is_short(completion: str) -> Score:
    return Score(1.0 if len(completion) < 100 else 0.0, explanation="by its length")


def rewards() -> None:
    spec: RewardSpec = RewardSpec.load("spec.yaml")
    result: RewardResult = spec.score({"completion": "4", "answer": "4"})
    print(result.value, correct("4", "4"))
    with mttp.evaluate("suite", tasks=["a", "b"], spec=spec) as run:
        run.result("a", 1.0, passed=True)
        results: list[TaskResult] = run.map(lambda task: 1.0)
        print(results, run.summary().mean)


def messages() -> None:
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox, mttp.mist.dial(inbox.address) as sender:
        receiver: Receiver = inbox
        to: Sender = sender
        print(receiver.address, to)
