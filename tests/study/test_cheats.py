"""Broken checkpoints and ways to cheat: none of them is promoted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from reading.traces import write

import mttp
from mttp.errors import StudyError
from mttp.reading import scan

TASKS = 100
PAGE = Path(__file__).parents[2] / "docs" / "gating.md"
RULES: dict[str, Any] = {
    "aggregate": [{"metric": "return", "margin": 0.05}],
    "protected": [{"by": "split", "metric": "return", "margin": 0.1}],
    "data": {},
}
GAIN: dict[str, Any] = {"aggregate": [{"metric": "return", "gain": 0.0}]}
SEEDS: dict[str, Any] = {"aggregate": [{"metric": "return", "min": 300}]}
Facts = dict[str, Any]


def honest() -> list[Facts]:
    """The baseline: it solves 90 of 100 tasks, of which a quarter is hard."""
    return [
        {
            "task": f"t{number:02}",
            "split": "easy" if number % 4 else "hard",
            "inputs": {"question": f"{number} + {number}"},
            "reward": float(number % 10 > 0),
            "grader": "maths",
        }
        for number in range(TASKS)
    ]


def record(path: Path, episodes: Iterable[Facts], run: str, kind: str = "eval") -> str:
    """Record episodes: what each states, its reward, and how it ends."""
    with mttp.configure(f"file://{path}", run=run, run_id=run, kind=kind):
        for facts in episodes:
            stated = {"env": "maths", **facts}
            reward, grader = stated.pop("reward"), stated.pop("grader", None)
            crash = stated.pop("crash", False)
            try:
                with mttp.episode(**stated) as episode:
                    if grader is None:
                        with episode.step() as step:
                            step.reward(reward)
                    elif reward is not None:
                        episode.reward(reward, grader=grader)
                    if crash:
                        raise RuntimeError("the simulator is gone")
            except RuntimeError:
                pass
    return str(path)


@dataclass(frozen=True)
class Case:
    """What is wrong with a candidate, and what a gate says."""

    name: str
    verdict: str
    """reject, inconclusive, or refused."""
    reason: str
    """A part of the evidence or of the error."""
    candidate: Callable[[], Iterable[Facts]] = honest
    base: Callable[[], Iterable[Facts]] = honest
    rules: dict[str, Any] = field(default_factory=lambda: RULES)
    kind: str = "eval"
    sides: Callable[[Any, Any], tuple[Any, Any]] = lambda base, candidate: (base, candidate)
    """From the files of both sides, what is compared."""


def with_facts(which: Callable[[int], bool], **facts: Any) -> Callable[[], Iterator[Facts]]:
    def episodes() -> Iterator[Facts]:
        for number, one in enumerate(honest()):
            yield {**one, **facts} if which(number) else one

    return episodes


def every(number: int) -> bool:
    return True


def two_samples(drop: Callable[[int, int], bool] = lambda number, sample: False) -> Iterator[Facts]:
    """Two samples a task, of which two in five fail; those that are dropped are not recorded."""
    for number, one in enumerate(honest()):
        for sample in range(2):
            if not drop(number, sample):
                yield {**one, "reward": reward_of(number, sample)}


def reward_of(number: int, sample: int) -> float:
    return float((number * 7 + sample * 3) % 5 > 1)


def successes(path: str) -> str:
    """The recording without the traces of the episodes that failed."""
    failed = {episode.trace_id for episode in mttp.read(path) if not episode.return_}
    kept = [span for span in scan(path, arrays=True) if span.trace_id not in failed]
    return str(write(Path(path).with_name("kept.jsonl"), kept))


def walker(lengths: Iterable[int], crashes: Callable[[int], bool]) -> Iterator[Facts]:
    """Episodes that cost 1 a step; of those that crash a part of the return."""
    for number, length in enumerate(lengths):
        yield {"task": f"t{number:02}", "reward": -float(length), "grader": None, "crash": crashes(number)}


BROKEN = [
    Case(
        "worse mean",
        "reject",
        "aggregate return margin",
        with_facts(lambda number: number < 30, reward=0.0),
    ),
    Case(
        "worse slice, better mean",
        "reject",
        "protected split=hard",
        lambda: [
            {**one, "reward": float(one["split"] == "easy" or number < 20)}
            for number, one in enumerate(honest())
        ],
    ),
    Case(
        "errors",
        "reject",
        "data errors",
        with_facts(lambda number: number % 10 == 0, crash=True),
    ),
    Case(
        "missing rewards",
        "reject",
        "data missing",
        with_facts(lambda number: number % 10 == 0, reward=None),
    ),
    Case(
        "rewards that are NaN",
        "reject",
        "data errors",
        with_facts(lambda number: number % 10 == 0, reward=math.nan),
    ),
    Case("half of the tasks", "refused", "tasks", lambda: honest()[::2]),
    Case(
        "another environment",
        "refused",
        "max_episode_steps of maths",
        with_facts(every, env_kwargs={"max_episode_steps": 2000}),
        with_facts(every, env_kwargs={"max_episode_steps": 500}),
    ),
    Case(
        "one collapsed seed of three",
        "inconclusive",
        "aggregate return min",
        lambda: (
            {"run": run, "reward": float(value + number % 3), "grader": None}
            for run, value in (("a", 480), ("b", 470), ("c", 20))
            for number in range(100)
        ),
        rules=SEEDS,
        kind="train",
    ),
]
CHEATS = [
    Case(
        "task names dropped",
        "refused",
        "tasks",
        lambda: [
            {name: value for name, value in one.items() if name != "task" or number < 50}
            for number, one in enumerate(honest())
        ],
    ),
    Case(
        "failures relabelled as easy",
        "reject",
        "protected split=hard",
        lambda: [
            {**one, "split": "easy", "reward": 0.0} if one["split"] == "hard" and number < 60 else one
            for number, one in enumerate(honest())
        ],
    ),
    Case("scores of its own", "refused", "grader", with_facts(every, reward=1.0, grader="mine")),
    Case(
        "easy inputs under the old names",
        "refused",
        "inputs",
        with_facts(lambda number: number % 10 == 0, inputs={"question": "1 + 1"}, reward=1.0),
    ),
    Case(
        "a file three times",
        "inconclusive",
        "count once",
        lambda: honest()[:20],
        lambda: honest()[:20],
        sides=lambda base, candidate: ([base] * 3, [candidate] * 3),
    ),
    Case(
        "a stale baseline",
        "reject",
        "baseline age",
        rules={**RULES, "baseline": {"max_age": "30 days"}},
    ),
    Case(
        "the baseline itself",
        "refused",
        "with itself",
        sides=lambda base, _: (base, base),
    ),
    Case(
        "failures that a sampler dropped",
        "refused",
        "the run states 100 episodes, 90 are here",
        sides=lambda base, candidate: (base, successes(candidate)),
    ),
    Case(
        "failed samples lost",
        "reject",
        "samples",
        lambda: two_samples(lambda number, sample: sample == 1 and not reward_of(number, sample)),
        two_samples,
    ),
    Case(
        "partial returns of crashes",
        "reject",
        "data errors",
        lambda: walker([3 if number % 2 else 20 for number in range(40)], lambda number: number % 2 == 1),
        lambda: walker([20] * 40, lambda number: False),
        rules=GAIN,
    ),
]


def sides(case: Case, directory: Path) -> tuple[Any, Any]:
    """Record both sides, a file a run."""
    paths = []
    for name, episodes in (("base", case.base), ("candidate", case.candidate)):
        runs: dict[str, list[Facts]] = {}
        for facts in episodes():
            stated = dict(facts)
            runs.setdefault(stated.pop("run", name), []).append(stated)
        paths.append(
            [record(directory / f"{name}-{run}.jsonl", part, run, case.kind) for run, part in runs.items()]
        )
    base, candidate = (side[0] if len(side) == 1 else side for side in paths)
    return case.sides(base, candidate)


def outcome(case: Case, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the verdict of the gate and all that it says."""
    base, candidate = sides(case, directory)
    if "baseline" in case.rules:
        now = mttp.read(base).episodes[-1].start_time / 1e9  # type: ignore[operator]  # it has one
        monkeypatch.setattr("time.time", lambda: now + 60 * 86_400)
    needs = case.rules is not SEEDS
    try:
        found = mttp.gate(candidate, rules=case.rules, baseline=base if needs else None)
    except StudyError as error:
        return "refused", str(error)
    said = [f"{rule.name}: {rule.verdict}" for rule in found.rules if rule.verdict != "pass"]
    return found.verdict, "\n".join([*said, *found.notes])


def test_the_baseline_recorded_again_is_promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The rules are no wall: an equal candidate passes them.
    """
    assert "promote" == outcome(Case("equal", "promote", ""), tmp_path, monkeypatch)[0]


@pytest.mark.parametrize("case", [*BROKEN, *CHEATS], ids=lambda case: case.name)
def test_it_is_not_promoted(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The verdict and its reason.
    """
    verdict, said = outcome(case, tmp_path, monkeypatch)

    assert case.verdict == verdict, said
    assert case.reason in said


@pytest.mark.parametrize("case", [*BROKEN, *CHEATS], ids=lambda case: case.name)
def test_it_is_never_called_better(case: Case, tmp_path: Path) -> None:
    """
    A comparison without rules refuses the sides, or finds no gain.
    """
    if case.rules is SEEDS or case.name == "worse slice, better mean":
        return
    try:
        found = mttp.compare(*sides(case, tmp_path), metrics=["return"])
    except StudyError:
        assert "refused" == case.verdict
    else:
        assert "better" != found.verdict


def test_the_page_has_the_verdicts() -> None:
    """
    Each case in a row.
    """
    section = PAGE.read_text().split("## What is not promoted")[1].split("## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (reject|inconclusive|refused) \|", section, re.MULTILINE)

    assert [(case.name, case.verdict) for case in (*BROKEN, *CHEATS)] == rows
