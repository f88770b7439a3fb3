"""
How often diagnoses alarm on healthy runs, simulated and trained, and how often they find what is broken.

`python benchmarks/diagnoses.py` prints the tables of docs/diagnosing.md and writes them between its markers,
and the rates of detectors into the source; `--draws 20` is quicker, `--dry` writes nothing.
Rules were tuned on draws of other seeds than the default one.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import mttp
from mttp.model import Episode, Grade, Reward, Run, Step, Update
from mttp.reading import Recording
from mttp.study.diagnosing.detectors import DETECTORS
from mttp.study.diagnosis import Diagnosis

DRAWS = 200
"""Runs of each kind."""
SEED = 2026
"""Another than the seeds on whose draws rules were tuned."""
MOST = 0.05
"""The largest share of healthy runs with a finding of the severity medium or high."""
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs/diagnosing.md"
SOURCE = ROOT / "src/mttp/study/diagnosing/false_alarms.py"
Rng: TypeAlias = np.random.Generator
Floats: TypeAlias = np.ndarray


@dataclass
class Made:
    """A run that is being made, in order of time."""

    episodes: list[Episode] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    def episode(self, **facts: Any) -> None:
        """Add an episode after everything else."""
        at = len(self.episodes) + len(self.updates)
        trace_id = hashlib.md5(str(at).encode(), usedforsecurity=False).hexdigest()
        self.episodes.append(
            Episode(**{"env": "maths", "trace_id": trace_id, "run_id": "r", "start_time": at + 1, **facts})
        )

    def update(self, **facts: Any) -> None:
        """Add an update after everything else."""
        at = len(self.episodes) + len(self.updates)
        self.updates.append(Update(index=len(self.updates), run_id="r", start_time=at + 1, **facts))

    def diagnose(self, **options: Any) -> Diagnosis:
        """Return the diagnosis of the run."""
        runs = [Run(id=run) for run in sorted({str(episode.run_id) for episode in self.episodes})]
        recording = Recording(episodes=self.episodes, updates=self.updates, runs=runs)
        return mttp.diagnose(recording, run=runs[0].id, **options)


Draw: TypeAlias = Callable[[Rng], Made]


# Simulated runs.


def _answers(
    rng: Rng,
    *,
    count: int = 300,
    success: tuple[float, float] = (0.3, 0.6),
    reward: Callable[[bool, float, int, Rng], float] = lambda right, *_: float(right),
    length: Callable[[bool, float, Rng], int] = lambda _, __, rng: int(rng.integers(40, 80)),
    has_outcome: bool = True,
    held_out: float = 0.0,
) -> Made:
    """Answers in groups of four whose success rate goes from one share to another, with an update a group."""
    made = Made()
    for number in range(count):
        time, task = number / count, number // 4 % 25
        right = bool(rng.random() < success[0] + (success[1] - success[0]) * time)
        size = length(right, time, rng)
        is_held_out = bool(rng.random() < held_out)
        made.episode(
            task=f"v{task}" if is_held_out else f"t{task}",
            split="validation" if is_held_out else "train",
            group=None if is_held_out else str(number // 4),
            outcome=("success" if right else "failure") if has_outcome else "unknown",
            stop_reason="stop",
            reward=Reward(value=reward(right, time, size, rng), status="ok", grader="verifier"),
            steps=(Step(index=0, action=" ".join(map(str, rng.integers(0, 900, size)))),),
        )
        if number % 12 == 11:
            _update(made, rng, time)
    return made


def _update(made: Made, rng: Rng, time: float) -> None:
    made.update(
        kl=float(rng.lognormal(-3.5 + 0.5 * time, 0.4)),
        clip_fraction=float(rng.beta(2, 20)),
        entropy=float((1.5 - 0.7 * time) * rng.uniform(0.9, 1.1)),
        grad_norm=float(rng.lognormal(-1, 0.5)),
    )


def _drifting(rng: Rng, memory: float) -> Made:
    """A plateau whose rewards and successes depend on those before."""
    level, noise = 0.0, math.sqrt(1 - memory**2)
    made = Made()
    for number in range(400):
        level = memory * level + noise * rng.normal()
        right = rng.random() < 1 / (1 + math.exp(-level))
        made.episode(
            outcome="success" if right else "failure",
            reward=Reward(value=level + rng.normal(), status="ok"),
            steps=(Step(index=0, action=" ".join(map(str, rng.integers(0, 900, 50)))),),
        )
        if number % 10 == 9:
            _update(made, rng, 0.5)
    return made


def _with_components(rng: Rng) -> Made:
    """A spec with a verifier, a style that rises and a penalty that varies, without outcomes."""
    made = Made()
    for number in range(300):
        time = number / 300
        scores = {
            "correct": float(rng.random() < 0.3 + 0.4 * time),
            "style": float(np.clip(rng.normal(0.3 + 0.4 * time, 0.2), 0, 1)),
            "brevity": -float(rng.random()) / 5,
        }
        kinds = {"correct": "verifier", "style": "rubric", "brevity": "penalty"}
        grades = tuple(Grade(name=name, kind=kinds[name], value=value) for name, value in scores.items())
        reward = Reward(value=sum(scores.values()), status="ok", components=scores, grades=grades)
        made.episode(task=f"t{number % 25}", reward=reward, steps=(Step(index=0, action=f"answer {number}"),))
        if number % 12 == 11:
            _update(made, rng, time)
    return made


# Trained runs.

CARTPOLE = {
    "observation": {"type": "Box", "shape": [4], "dtype": "float32"},
    "action": {"type": "Discrete", "n": 2, "start": 0},
}
PENDULUM = {
    "observation": {"type": "Box", "shape": [3], "dtype": "float32"},
    "action": {"type": "Box", "shape": [1], "dtype": "float32"},
}


def _played(
    made: Made, env: Any, name: str, spaces: Mapping[str, Any], act: Callable[[Floats], Any], seed: int
):
    """Play and record one episode; return its observations, actions and rewards."""
    observation, _ = env.reset(seed=seed)
    steps, terminated, truncated = [], False, False
    while not (terminated or truncated):
        action = act(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation, action, float(reward)))
        observation = following
    made.episode(
        env=name,
        env_spaces=spaces,
        terminated=terminated,
        truncated=truncated,
        length=len(steps),
        return_=sum(reward for _, _, reward in steps),
        steps=tuple(
            Step(index=at, observation=seen, action=action, reward=reward)
            for at, (seen, action, reward) in enumerate(steps)
        ),
    )
    return steps


def _climb(
    rng: Rng, name: str, spaces: Mapping[str, Any], act: Callable[..., Any], size: int, count: int
) -> Made:
    """Hill climbing: noise is added to the best weights, and stays where the return is no less."""
    import gymnasium

    env, made = gymnasium.make(name), Made()
    best, highest, scale = rng.normal(size=size), -math.inf, 1.0
    for _ in range(count):
        weights = best + scale * rng.normal(size=size)
        steps = _played(made, env, name, spaces, partial(act, weights), int(rng.integers(2**31)))
        total = sum(reward for _, _, reward in steps)
        if total >= highest:
            best, highest, scale = weights, total, max(0.05, 0.8 * scale)
        else:
            scale = min(1.0, 1.05 * scale)
        made.update()
    env.close()
    return made


def _cartpole_climber(rng: Rng) -> Made:
    return _climb(rng, "CartPole-v1", CARTPOLE, lambda weights, seen: int(weights @ seen > 0), 4, 120)


def _five_seeds(rng: Rng) -> Made:
    """Five seeds of a policy that learns, each with a plateau of its own."""
    made = Made()
    for seed in range(5):
        plateau = rng.normal(400, 25)
        for number in range(120):
            reached = plateau * (1 - math.exp(-number / 25))
            made.episode(run_id=f"seed{seed}", return_=float(rng.normal(reached, 40)), length=number)
    return made


def _pendulum_climber(rng: Rng) -> Made:
    def act(weights: Floats, seen: Floats) -> Floats:
        return np.clip(weights[:3] @ seen + weights[3:] @ (seen * seen[0]), -2, 2).reshape(1)

    return _climb(rng, "Pendulum-v1", PENDULUM, act, 6, 60)


def _sampled(rng: Rng, policy: Floats, seen: Floats) -> int:
    """Draw an action of a logistic policy."""
    return int(rng.random() < 1 / (1 + math.exp(-float(policy @ seen))))


def _cartpole_reinforce(rng: Rng) -> Made:
    """REINFORCE with a linear policy and a linear critic, an update every four episodes."""
    import gymnasium

    env, made = gymnasium.make("CartPole-v1"), Made()
    policy, critic = np.zeros(4), np.zeros(9)

    def features(seen: Floats) -> Floats:
        return np.concatenate([seen, seen**2, [1.0]])

    for _ in range(40):
        rows = []
        for _ in range(4):
            steps = _played(
                made,
                env,
                "CartPole-v1",
                CARTPOLE,
                partial(_sampled, rng, policy),
                int(rng.integers(2**31)),
            )
            target = 0.0
            for seen, action, reward in reversed(steps):
                target = reward + 0.98 * target
                rows.append((seen, action, target))
        seen = np.array([row[0] for row in rows])
        actions, targets = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        inputs = np.array([features(one) for one in seen])
        residuals = targets - inputs @ critic
        advantages = (residuals - residuals.mean()) / (residuals.std() + 1e-8)
        chances = 1 / (1 + np.exp(-(seen @ policy)))
        gradient = ((actions - chances) * advantages) @ seen / len(seen)
        step = 4.0 * gradient
        after = 1 / (1 + np.exp(-(seen @ (policy + step))))
        made.update(
            entropy=float(-(chances * np.log(chances) + (1 - chances) * np.log(1 - chances)).mean()),
            kl=float(
                (
                    chances * np.log(chances / after) + (1 - chances) * np.log((1 - chances) / (1 - after))
                ).mean()
            ),
            grad_norm=float(np.linalg.norm(gradient)),
            policy_loss=float(-(np.log(np.where(actions == 1, chances, 1 - chances)) * advantages).mean()),
            value_loss=float((residuals**2).mean()),
            explained_variance=float(1 - residuals.var() / targets.var()),
        )
        policy = policy + step
        critic = np.linalg.lstsq(inputs.T @ inputs + np.eye(9), inputs.T @ targets, rcond=None)[0]
    env.close()
    return made


def _grpo(rng: Rng) -> Made:
    """GRPO on thirty tasks with eight possible answers each, of which one is right."""
    made, size = Made(), 8
    logits = rng.normal(0, 0.5, (30, 8))
    right = rng.integers(8, size=30)
    reference = logits.copy()
    for _ in range(40):
        divergence, entropy = [], []
        for task in rng.integers(30, size=3):
            chances = _softmax(logits[task])
            answers = rng.choice(8, size, p=chances)
            rewards = (answers == right[task]).astype(float)
            for answer, reward in zip(answers, rewards, strict=True):
                made.episode(
                    task=f"t{task}",
                    group=f"g{len(made.updates)}-{task}",
                    outcome="success" if reward else "failure",
                    reward=Reward(value=float(reward), status="ok", grader="exact", grader_version="1"),
                    steps=(Step(index=0, action=f"the answer is {answer}"),),
                )
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
            for answer, advantage in zip(answers, advantages, strict=True):
                logits[task] += 0.15 * advantage * (np.eye(8)[answer] - chances)
            divergence.append(float(chances @ np.log(chances / _softmax(reference[task]))))
            entropy.append(float(-(chances @ np.log(chances))))
        made.update(kl=float(np.mean(divergence)), entropy=float(np.mean(entropy)))
    return made


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


# Broken runs.


def _hacked(rng: Rng) -> Made:
    return _answers(
        rng, success=(0.4, 0.0), reward=lambda right, time, *_: 0.3 * right + time + 0.1 * rng.normal()
    )


def _flat_quality(rng: Rng) -> Made:
    return _answers(
        rng,
        count=600,
        success=(0.4, 0.44),
        reward=lambda right, time, *_: 0.3 * right + 2 * time + 0.1 * rng.normal(),
    )


def _leaking(rng: Rng) -> Made:
    return _prompted(rng, leaked=3)


def _blown_up(rng: Rng) -> Made:
    made = _answers(rng)
    kept, last = made.updates[:-4], made.updates[-4:]
    made.updates = [
        *kept,
        *(
            Update(index=one.index, run_id="r", start_time=one.start_time, kl=kl)
            for one, kl in zip(last, (0.5, 3, 20, 80), strict=True)
        ),
    ]
    return made


@dataclass(frozen=True)
class Row:
    """One kind of run."""

    name: str
    draw: Draw
    kind: str | None = None
    """The finding that a broken run must have; None for a healthy one."""

    def findings(self, draws: int, seed: int = SEED) -> Iterator[frozenset[str]]:
        """Yield the kinds of findings of each run that are medium or high."""
        rng = np.random.default_rng(seed)
        for _ in range(draws):
            yield frozenset(one.kind for one in self.draw(rng).diagnose().at_least("medium"))


def _noisy(right: bool, _: float, __: int, rng: Rng) -> float:
    return right + float(rng.normal())


def _less_noisy(right: bool, _: float, __: int, rng: Rng) -> float:
    return right + float(rng.normal(0, 0.3))


def _growing(right: bool, time: float, rng: Rng) -> int:
    return int(rng.integers(40, 80) * (1 + 0.5 * right * time))


def _held_out(rng: Rng) -> Made:
    return _answers(rng, has_outcome=False, held_out=0.2)


def _prompted(rng: Rng, leaked: int = 0) -> Made:
    """Answers with the prompt of each task; so many of the 25 held-out prompts are those of trained tasks."""
    made = _held_out(rng)
    texts = [bytes(rng.integers(97, 123, 150).astype(np.uint8)).decode() for _ in range(50)]
    prompts = {f"t{task}": texts[task] for task in range(25)}
    prompts |= {f"v{task}": texts[task if task < leaked else 25 + task] for task in range(25)}
    made.episodes = [
        replace(episode, inputs={"prompt": prompts[str(episode.task)]}) for episode in made.episodes
    ]
    return made


def _level(rng: Rng) -> Made:
    return _answers(rng, success=(0.5, 0.5), reward=_less_noisy)


def _steep(right: bool, time: float, _: int, rng: Rng) -> float:
    return 2 * time + 0.2 * right + 0.2 * float(rng.normal())


HEALTHY = (
    Row("answers, exact reward, success .3 to .6", _answers),
    Row("answers, steep dense reward, success .3 to .6", lambda rng: _answers(rng, count=240, reward=_steep)),
    Row("the same, 1,200 episodes", lambda rng: _answers(rng, count=1_200, reward=_steep)),
    Row("answers, noisy reward", lambda rng: _answers(rng, reward=_noisy)),
    Row("answers, quality is a fifth of held-out episodes", _held_out),
    Row("the same with prompts", _prompted),
    Row("answers, length grows with success", lambda rng: _answers(rng, length=_growing)),
    Row("plateau at 95 %", lambda rng: _answers(rng, success=(0.95, 0.95))),
    Row("plateau at 50 %", _level),
    Row("plateau, autocorrelation .9", lambda rng: _drifting(rng, 0.9)),
    Row("plateau, autocorrelation .98", lambda rng: _drifting(rng, 0.98)),
    Row("spec with verifier, rubric and penalty", _with_components),
    Row("five seeds of one plateau", _five_seeds),
    Row("trained: GRPO, 30 tasks", _grpo),
    Row("trained: CartPole, hill climbing", _cartpole_climber),
    Row("trained: CartPole, REINFORCE with critic", _cartpole_reinforce),
    Row("trained: Pendulum, hill climbing", _pendulum_climber),
)  # fmt: skip
BROKEN = (
    Row("success .4 to 0 under a rising reward", _hacked, kind="reward_hacking"),
    Row("success .4 to .44 under a rising reward, 600 episodes", _flat_quality, kind="reward_hacking"),
    Row("3 of 25 held-out prompts are trained on", _leaking, kind="leakage"),
    Row("KL .5, 3, 20, 80 in the last four updates", _blown_up, kind="update_spike"),
)


def measured(draws: int, seed: int) -> Iterator[tuple[Row, list[frozenset[str]]]]:
    """Yield each kind of run with the findings of its draws."""
    for row in (*HEALTHY, *BROKEN):
        yield row, list(row.findings(draws, seed))


def alarm_rate(found: list[frozenset[str]]) -> float:
    """Return the share of runs with any finding."""
    return sum(map(bool, found)) / len(found)


def rates(results: Mapping[Row, list[frozenset[str]]]) -> dict[str, float]:
    """Return the largest rate of each detector over the kinds of healthy run."""
    worst = {one.kind: 0.0 for one in DETECTORS}
    for row, found in results.items():
        for kind, count in Counter(kind for kinds in found for kind in kinds).items():
            if row.kind is None:
                worst[kind] = max(worst[kind], count / len(found))
    return worst


def markdown(results: Mapping[Row, list[frozenset[str]]]) -> str:
    """Return the tables for the documentation."""
    lines = ["| healthy run | runs | any medium or high | which |", "| --- | ---: | ---: | --- |"]
    for row, found in results.items():
        if row.kind is None:
            counts = Counter(kind for kinds in found for kind in kinds)
            listed = ", ".join(f"`{kind}` {count / len(found):.3f}" for kind, count in counts.most_common())
            lines.append(f"| {row.name} | {len(found)} | {alarm_rate(found):.3f} | {listed} |")
    lines += ["", "| broken run | runs | finding | found |", "| --- | ---: | --- | ---: |"]
    for row, found in results.items():
        if row.kind is not None:
            share = sum(row.kind in kinds for kinds in found) / len(found)
            lines.append(f"| {row.name} | {len(found)} | `{row.kind}` | {share:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write, and exit with 1 if healthy runs alarm too often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    results = {}
    for row, found in measured(options.draws, options.seed):
        results[row] = found
        counts = Counter(kind for kinds in found for kind in kinds)
        print(f"{alarm_rate(found):.3f} of {len(found)}  {row.name}: {dict(counts)}", flush=True)
    if not options.dry:
        _write(DOCS, ("<!-- false alarms -->\n", "\n<!-- /false alarms -->"), markdown(results))
        table = "".join(f'    "{kind}": {rate:.3f},\n' for kind, rate in rates(results).items())
        _write(SOURCE, ("float]] = {\n", "}\n"), table)
        _write(SOURCE, ("DRAWS: Final = ", "\n"), str(options.draws))
    raise SystemExit(any(row.kind is None and alarm_rate(found) > MOST for row, found in results.items()))


def _write(path: Path, markers: tuple[str, str], content: str) -> None:
    before, rest = path.read_text().split(markers[0])
    after = rest.split(markers[1], 1)[1]
    path.write_text(before + markers[0] + content + markers[1] + after)


if __name__ == "__main__":
    main()
