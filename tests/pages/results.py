"""One result of each kind, with all that its page can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from reading.traces import episode, run, write
from specimen import EVERYTHING

import mttp
from mttp.cli.doctor.findings import SetupFinding
from mttp.model.draws import LabelRate
from mttp.model.evaluations import Evaluation, TaskResult
from mttp.model.gradings import GraderFailure, GraderHealth
from mttp.model.scorings import Spec
from mttp.model.statistics.metric_comparison import MetricComparison
from mttp.pages import checks, evals, replay, scoring, specs, study, summary
from mttp.pages import episode as episodes
from mttp.pages.blocks import Block, axis, histogram, lines, scatter, section, series
from mttp.pages.graders import documents, graders_table
from mttp.reading import Problem
from mttp.reading.checking import Example, Finding, Findings
from mttp.rewards.case_runs import CaseResult, run_cases
from mttp.rewards.difference import differences
from mttp.rewards.mutations import mutate
from mttp.rewards.rescoring import Rescored, RescoredSlice, Rescoring
from mttp.rewards.spec import RewardSpec
from mttp.rewards.validation import RaterAgreement, Validation
from mttp.semconv import attributes as a
from mttp.study import (
    Cleared,
    Comparison,
    Diagnosis,
    DiagnosisFinding,
    Divergence,
    Flip,
    GateResult,
    NotJudged,
    Replay,
    RescoredRecording,
    RewardChange,
    RuleResult,
    SideDifference,
    TrainingReading,
    align,
)
from mttp.study.sample import SampleIdentity
from mttp.workflows.probing import ProbeFinding, ProbeReport

FIRST, SECOND = "ab" * 16, "cd" * 16
PROBLEMS = [
    Problem(kind="broken_line", message="not JSON", file="a|b.jsonl", line=line) for line in range(3, 10)
]
DIFFERENCE = SideDifference(kind="config", name="lr", base="0.1", candidate="")
SPEC = """
mttp: reward-spec/1
name: math
version: 1.0.0
inputs: {answer: string, text: string}
components:
  - {name: correct, kind: verifier, use: "graders:correct"}
  - {name: short, kind: rubric, use: "graders:short", weight: 0.5}
combine: weighted_sum
cases:
  - {name: right, kind: valid, input: {answer: "4", text: "4"}, expect: {value: 1.5}}
  - {name: wrong, kind: near-miss, input: {answer: "4", text: "5"}, expect: {value: 1}}
  - {better: wrong, than: right}
"""
GRADERS = """
def correct(answer, text):
    return float(answer == text)


def short(text):
    return 1.0 if len(text) < 10 else 0.0
"""


def recorded(*runs: str) -> mttp.Summary:
    """The summary of a file with four episodes of each run, and an unfinished one."""
    spans = []
    for place, name in enumerate(runs):
        scope = replace(episode(0)[0].scope, resource={"service.name": "test", a.RUN_ID: name})
        spans += [replace(span, scope=scope, attributes=span.attributes | {a.RUN_ID: name}) for span in run()]
        for number in range(4):
            scored = {"return_": number / 2, "components": {"correct": number / 4}}
            spans += [
                replace(span, attributes=span.attributes | {a.RUN_ID: name})
                for span in episode(10 * place + number, scope=scope, **scored)  # type: ignore[arg-type]
            ]
    return mttp.summarize(write("a.jsonl", [*spans, *episode(100, steps=3)[:-1]]))


def metric(name: str, verdict: Any, **facts: Any) -> MetricComparison:
    """A metric of 100 episodes a side."""
    known: dict[str, Any] = {
        "base": 0.5,
        "candidate": 0.75,
        "effect": 0.25,
        "interval": (0.125, 0.375),
        "confidence": 0.95,
        "p_value": 0.001,
        "p_corrected": 0.002,
        "n": (100, 100),
        "clusters": 100,
        "paired": True,
        "method": "paired t",
        "detectable": 0.1,
        "margin": None,
        "missing": (0, 3),
        "worst_case": 0.2,
    }
    return MetricComparison(name=name, verdict=verdict, **known | facts)


def comparison() -> Iterable[Block | None]:
    unknown = metric("tokens", "inconclusive", effect=None, interval=None, reason="too few")
    flips = [
        Flip(task=task, base=base, candidate=1 - base, base_episode=FIRST, candidate_episode=SECOND)
        for task, base in (("a", 0.0), ("b", 1.0))
    ]
    return study.comparison_page(
        Comparison(
            base="base.jsonl",
            candidate="new.jsonl",
            differences=(DIFFERENCE, replace(DIFFERENCE, kind="spec", name="math", is_refused=True)),
            metrics=(metric("return", "better"), unknown),
            flips=tuple(flips),
            slices={"easy": metric("return", "worse", effect=-0.25, interval=(-0.375, -0.125))},
            notes=("episodes are paired by task",),
            problems=("has no end",),
        )
    )


def gate() -> Iterable[Block | None]:
    rules = [
        RuleResult(name=f"aggregate {verdict}", kind="aggregate", verdict=verdict, evidence="0.5, n=100")
        for verdict in ("pass", "fail", "inconclusive")
    ]
    identity = SampleIdentity(runs=("run-1",), names=("first",), last_start=10**18, sha256="ef" * 32)
    return study.gate_page(
        GateResult(
            candidate="new.jsonl",
            baseline="base.jsonl",
            rules=(replace(rules[0], episodes=(FIRST, SECOND)), *rules[1:]),
            differences=(DIFFERENCE,),
            identity=identity,
            candidate_identity=identity,
            rules_sha256="01" * 32,
            problems=("has no end",),
        )
    )


def diagnosis() -> Iterable[Block | None]:
    found: dict[str, Any] = {"evidence": "0.9 of 100", "confidence": "sure", "n": 100, "method": "Wilson"}
    findings = [
        DiagnosisFinding(kind="collapse", severity="high", episodes=(FIRST,), advice="stop", **found),
        DiagnosisFinding(kind="drift", severity="low", advice="wait", **found),
    ]
    reading = TrainingReading(
        validation="flat",
        reward="up",
        validation_trend="0.01",
        reward_trend="0.2",
        meaning="the reward alone rises",
        action="watch",
        table=(),
    )
    return study.diagnosis_page(
        Diagnosis(
            source="new.jsonl",
            episodes=100,
            updates=10,
            quality=None,
            findings=tuple(findings),
            judged=(Cleared(kind="noise", evidence="0.1, n=100"),),
            missing=(NotJudged(kind="leakage", reason="no tasks"),),
            reading=reading,
            should_stop=True,
            advice="stop and look",
            problems=("has no end",),
            sampled=("half of the episodes are missing",),
        )
    )


def graders() -> Iterable[Block | None]:
    failures = [
        GraderFailure(
            error_type="ValueError", message="no [number]", count=2, first=FIRST, raised_by=(SECOND,)
        ),
        *(GraderFailure(error_type=f"E{n}", message="", count=1, first=FIRST) for n in range(3)),
    ]
    scores: dict[str, Any] = {"gradings": 9, "ok": 4, "count": 4, "mean": 0.5, "min": 0.0, "max": 1.0}
    total = GraderHealth(scope="episode", grader="math 1.0", component="", partial=5, **scores)
    correct = replace(total, component="correct", partial=0, error=5, failures=tuple(failures))
    checked = replace(total, verdicts={"pass": 3, "fail": 1}, failed_checks={"leak": 1})
    step = replace(correct, scope="step", component="", abstained=1, failures=tuple(failures[:1]))
    return [graders_table(documents([checked, correct, step], 10))]


def evaluation() -> Iterable[Block | None]:
    results = [
        TaskResult(task="a", score=1.0, passed=True, episode=FIRST, duration=1.5, slices=("easy",)),
        TaskResult(task="b", score=0.0, passed=False, baseline_score=0.5, delta=-0.5, slices=("hard",)),
        TaskResult(task="c", outcome="errored", error="connection refused", error_type="OSError"),
        TaskResult(task="d", outcome="abstained"),
    ]
    suite = Evaluation(
        id="0123456789",
        suite="gsm",
        suite_version="1",
        run_name="run",
        spec=Spec(name="math", version="1.0"),
        tasks=("a", "b", "c", "d", "e"),
        status="completed",
        results=tuple(results),
        start_time=10**18,
    )
    return evals.page([suite], {}, found=PROBLEMS[:1], sizes=(1,), tasks=True)


def check() -> Iterable[Block | None]:
    finding = Finding(
        id="type_mismatch",
        level="violation",
        message="Attribute 'a' has type 'int'. Type should be 'double'.",
        signal_type="span",
        signal_name="step",
        attribute="a",
        count=1200,
        examples=(Example(FIRST, "cd" * 8, '"a|b\n[x](y) <b>*"'),),
    )
    other = replace(finding, level="information", signal_type="resource", signal_name="", count=1)
    return checks.check_page(
        Findings(
            all=[finding, other],
            levels={"violation": 1200, "information": 1},
            ids={"type_mismatch": 1201},
            unlisted=7,
            omissions={"text": 1},
            spans=1200,
            foreign=1,
            problems=PROBLEMS,
            sources=[Path("a|b.jsonl")],
        )
    )


def setup() -> Iterable[Block | None]:
    advice = "set MTTP_TRANSPORT"
    return checks.setup_page(
        [
            SetupFinding("python", "ok", "3.12"),
            SetupFinding("disk", "warning", "5 GB", advice),
            SetupFinding("clock", "error", "off", advice),
        ]
    )


def probe() -> Iterable[Block | None]:
    outcomes = ("whole", "changed", "lost", "refused", "unknown")
    return checks.probe_page(
        ProbeReport(
            to="http://localhost:4318",
            query="tempo://localhost:3200",
            run_id="run-1",
            findings=[
                ProbeFinding(case=f"a {each} value", outcome=each, detail="", answer="") for each in outcomes
            ],
            logs="accepted",
            profile="tempo",
            helpless=["NaN"],
        ),
        everything=False,
    )


def push() -> Iterable[Block | None]:
    pushed = SimpleNamespace(
        spans=30,
        resumed=10,
        traces={FIRST},
        bytes=2048,
        lost=Counter(invalid=2, spool_damaged=1),
        message="no",
    )
    job: Any = SimpleNamespace(pushed=pushed, dry=True, shift=5 * 10**9)
    left_out = [{"attribute": "mttp.text", "reason": "content", "spans": 3}]
    document = {"to": "http://localhost:4318", "profile": "generic", "left_out": left_out}
    return checks.push_page(job, document, ["not sent: 1 folder"], PROBLEMS[:1])


def spec(**changes: str) -> RewardSpec:
    """The spec of two components, two cases and their order, with replaced words."""
    text = SPEC
    for old, new in changes.items():
        text = text.replace(old, new)
    Path("graders.py").write_text(GRADERS)
    path = Path("spec.yaml")
    path.write_text(text)
    return RewardSpec.load(path)


def spec_difference() -> Iterable[Block | None]:
    before, after = spec(), spec(rubric="penalty")
    return specs.differences_page(before, after, differences(before, after))


def cases() -> Iterable[Block | None]:
    given = spec()
    report = run_cases(given.plan, given.document.cases, repeats=2, human={"right": 1.0, "wrong": 0.0})
    with patch.object(CaseResult, "seconds", 0.5):
        return list(scoring.cases_page(given, report))


def mutation() -> Iterable[Block | None]:
    given = spec(
        **{"{value: 1}": "{value: 0.5}", "{better: wrong, than: right}": "{better: right, than: wrong}"}
    )
    return scoring.mutation_page(given, mutate(given.plan, given.document.cases))


def validation() -> Iterable[Block | None]:
    rater = RaterAgreement(
        key="score",
        by="ada",
        compared="verdict",
        episodes=10,
        left_out=1,
        left_out_by_selection={"tail": 3},
        agreed=8,
        of=10,
        share=0.8,
        effective=10.0,
        kappa=0.5,
        tau_b=0.25,
        alpha=0.75,
    )
    return scoring.validation_page(
        spec(),
        Validation(
            episodes=(),
            lacking={"answer": 2},
            without_group=1,
            statuses={"ok": 8, "error": 2},
            errors={"ValueError: no": 2},
            verdicts={"pass": 8},
            failed_checks={"leak": 1},
            mean=0.5,
            instability=None,
            agreements=(rater,),
            rates=(
                LabelRate(
                    key="score",
                    by="ada",
                    labels=11,
                    left_out={"tail": 3},
                    mean=0.75,
                    effective=8.0,
                    interval=(0.4, 0.9),
                    interval_method="Wilson, 95 %",
                    method="labels of random episodes",
                ),
            ),
            unread_labels={"maybe": 1},
        ),
    )


def rescoring() -> Iterable[Block | None]:
    changed = Rescored(
        trace_id=FIRST,
        task="a",
        slices=(),
        recorded=1.0,
        before=1.0,
        after=0.5,
        verdict_before="pass",
        verdict_after="fail",
    )
    invalid = replace(changed, trace_id=SECOND, after=None, verdict_after=None)
    whole = RescoredSlice(
        name="all",
        episodes=10,
        changed=2,
        flipped=1,
        invalid_before=0,
        invalid_after=1,
        mean_before=0.75,
        mean_after=0.5,
        tau_b=0.25,
    )
    return scoring.rescoring_page(
        Rescoring(
            episodes=(changed, invalid),
            reasons_before={},
            reasons_after={"correct: ValueError": 1},
            lacking={"answer": 2},
            reproduced=8,
            slices=(whole, replace(whole, name="easy")),
        )
    )


def rescored() -> Iterable[Block | None]:
    change = RewardChange(
        trace_id=FIRST,
        task="a",
        group="g",
        slices=(),
        old=1.0,
        new=0.5,
        old_verdict="pass",
        new_verdict="fail",
        old_rank=1,
        new_rank=2,
        old_advantage=0.5,
        new_advantage=-0.25,
    )
    invalid = replace(change, trace_id=SECOND, new=None, new_verdict=None, reasons=("correct: ValueError",))
    return scoring.rescored_page(
        RescoredRecording(
            episodes=[],
            spec=Spec(name="math", version="1.1"),
            changes=(change, invalid),
            lacking={"answer": 2},
            without_group=1,
        )
    )


def replayed() -> Iterable[Block | None]:
    return replay.page(
        Replay(
            episode=FIRST,
            env="CartPole-v1",
            seed=3,
            steps=7,
            divergence=Divergence(step=7, what="reward", recorded=1.0, seen=0.5, distance=0.5),
            tolerance=1e-6,
            before=(SECOND,),
            notes=("the library's version differs",),
        )
    )


def steps(reward: float, *more: mttp.Step) -> mttp.Episode:
    """An episode of one step with this reward, and more."""
    step = mttp.Step(index=0, observation=np.arange(3), action="left", reward=reward, reward_status="ok")
    return mttp.Episode(trace_id=FIRST if reward else SECOND, steps=(step, *more))


def aligned() -> Iterable[Block | None]:
    return replay.alignment_page(align(steps(1.0), steps(0.0, mttp.Step(index=1, action="right"))))


def step() -> Iterable[Block | None]:
    return replay.step_page(steps(1.0).steps[0], 0, 2)


def agent() -> Iterable[Block | None]:
    """An episode of a chat with a tool, a judge and a group."""
    ask = {"id": "c1", "function": {"name": "add", "arguments": '{"a": 2, "b": 4}'}}
    asked = [
        {"role": "system", "content": "Think in <think></think>."},
        {"role": "user", "content": "2+**4**?"},
    ]
    said = {"role": "assistant", "content": "<think>I add.</think>Let me see.", "tool_calls": [ask]}
    told = {"role": "tool", "tool_call_id": "c1", "content": '{"sum": 6}'}
    model = mttp.model.Call(
        operation="chat", name="tiny", input_tokens=9, output_tokens=4, arguments=asked, result=said
    )
    tool = mttp.model.Call(
        operation="execute_tool", name="add", arguments={"a": 2, "b": 4}, result={"sum": 6}
    )
    judge = mttp.model.Call(operation="chat", name="critic", arguments="Is it 6?", result="yes")
    part = mttp.model.Grade(name="short", kind="rubric", value=0.5, weight=1.0, contribution=0.5)
    grade = mttp.model.Grade(
        name="right", kind="judge", value=0.5, weight=2.0, contribution=1.0, parts=(part,), calls=(judge,)
    )
    tokens = mttp.model.Tokens(
        ids=[3, 4], prompt_ids=[1], logprobs=[-0.5, -1.0], texts=("Let", " me"), tokenizer="tiny"
    )
    reward = mttp.model.Reward(value=1.0, status="ok", grader="math", grades=(grade,), explanation="six")
    steps = (
        mttp.Step(index=0, observation=asked, action=said, calls=(model, tool), tokens=tokens),
        mttp.Step(index=1, observation=[*asked, said, told], action={"role": "assistant", "content": ""}),
    )
    group = mttp.model.Group(
        id="g", episodes=(FIRST, SECOND), rewards=(1.0, 0.0), advantages=(0.5, -0.5), valid_count=2
    )
    chat = mttp.Episode(
        trace_id=FIRST, env="desk", task="a", group="g", steps=steps, rewards=(reward,), reward=reward
    )
    return episodes.page(chat, group=group, problems=["has no end"])


def environment() -> Iterable[Block | None]:
    """An episode of vectors, discrete actions and pictures."""
    frame = np.zeros((16, 16), np.uint8)
    steps = [
        mttp.Step(
            index=place,
            observation=np.array([place / 2, -1.0]) if place % 2 else frame,
            action=place // 2,
            reward=float(place),
            reward_status="ok",
            start_time=10**18 + place * 10**6,
            end_time=10**18 + (place + 1) * 10**6,
        )
        for place in range(4)
    ]
    return episodes.page(
        mttp.Episode(trace_id=FIRST, start_time=10**18, end_time=10**18 + 10**7, steps=(*steps,))
    )


def charts() -> Iterable[Block | None]:
    """Blocks that only reports have so far."""
    points = {"a": [(1.0, 2.0, FIRST)]}
    curves = [series("a", [0, 1, 2], [0.0, float("nan"), 1.0]), series("b", [0, 1], [2.0, 1.0])]
    return [
        section(
            "charts",
            "Charts",
            [
                lines("Return", axis("episode"), axis("return"), curves, "Means."),
                histogram("Length", axis("steps"), {"": [1.0, 1.0, 2.0]}),
                scatter("Reward by length", axis("steps"), axis("reward"), points, "Points."),
            ],
        )
    ]


RESULTS: Mapping[str, Callable[[], Iterable[Block | None]]] = {
    "summary": lambda: summary.page(recorded("run-1")),
    "summary_of_runs": lambda: summary.page(recorded("run-1", "run-2")),
    "comparison": comparison,
    "gate": gate,
    "diagnosis": diagnosis,
    "graders": graders,
    "evaluation": evaluation,
    "check": check,
    "setup": setup,
    "probe": probe,
    "push": push,
    "spec": lambda: specs.page(spec()),
    "spec_difference": spec_difference,
    "cases": cases,
    "mutation": mutation,
    "validation": validation,
    "rescoring": rescoring,
    "rescored": rescored,
    "replay": replayed,
    "alignment": aligned,
    "step": step,
    "charts": charts,
    "episode": lambda: episodes.page(replace(EVERYTHING, trace_id=FIRST, run_id="run-1")),
    "episode_of_an_agent": agent,
    "episode_of_an_environment": environment,
}
"""The page of each kind of result, by the name of its expected text."""
