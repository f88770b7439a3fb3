"""Gates: each rule with each verdict, rules that are wrong, and data that are missing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mttp
from mttp.errors import ReadError, StudyError
from mttp.study.bounds import mean_bounds, percentile_bounds, ratio_bounds, share_bounds
from mttp.study.rule_templates import TEMPLATES
from mttp.study.rules import load_rules

Recorded = Callable[..., str]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Record episodes, each a mapping of what it states; `passed` is its outcome and its reward."""

    def write(name: str, episodes: Sequence[dict[str, Any]], **run: Any) -> str:
        path = str(tmp_path / f"{name}.jsonl")
        with mttp.configure(f"file://{path}", run_id=name, **{"kind": "eval", **run}):
            for facts in episodes:
                stated = dict(facts)
                passed, scoring = stated.pop("passed", None), stated.pop("scoring", {})
                reward, status = stated.pop("reward", passed), stated.pop("fails", False)
                try:
                    with mttp.episode(env="maths", **stated) as episode:
                        with episode.step() as step:
                            step.observation("question")
                        if reward is not None or scoring:
                            episode.reward(None if reward is None else float(reward), **scoring)
                        if status:
                            raise RuntimeError("the simulator is gone")
                        if passed is not None:
                            episode.end(outcome="success" if passed else "failure")
                except RuntimeError:
                    pass
        return path

    return write


def suite(passed: int, n: int = 100, **facts: Any) -> list[dict[str, Any]]:
    """Tasks of which the first ones are solved; half of them are of the split `hard`."""
    return [
        {"task": f"t{place:03}", "passed": place < passed, "split": "hard" if place % 2 else "easy", **facts}
        for place in range(n)
    ]


def verdicts(found: mttp.study.GateResult) -> dict[str, str]:
    return {rule.name: rule.verdict for rule in found.rules}


def trained(path: Path, entropies: Sequence[float | None], episodes: int = 30) -> str:
    """Record a training run with these entropies of its updates."""
    with mttp.configure(f"file://{path}", run_id=path.stem, kind="train"):
        for _ in range(episodes):
            with mttp.episode(env="maths") as episode, episode.step() as step:
                step.reward(1.0)
        for entropy in entropies:
            mttp.update(loss=1.0, entropy=entropy)
    return str(path)


def test_entropy_is_a_metric_of_training_runs(tmp_path: Path) -> None:
    """
    Each run is one value, the mean over its updates, however its recording is passed.
    """
    entropies: dict[str, list[float | None]] = {"a": [0.8, None, 0.6], "b": [0.71], "c": [0.72, 0.74]}
    runs = [trained(tmp_path / f"{name}.jsonl", values) for name, values in entropies.items()]
    sides: list[Any] = [runs, [*runs, runs[0]], [*map(mttp.read, runs)]]

    for side in sides:
        found = mttp.gate(side, rules={"aggregate": [{"metric": "entropy", "min": 0.6, "max": 0.72}]})
        low, high = found.rules[:2]
        assert ("pass", "inconclusive") == (low.verdict, high.verdict)
        assert np.mean([0.7, 0.71, 0.73]) == pytest.approx(low.value)
        assert "over 3 runs" in low.evidence
    lower = [trained(tmp_path / f"{name}.jsonl", [0.1]) for name in "def"]
    effect = mttp.compare(runs, lower, metrics=["return", "entropy"])["entropy"]
    assert 0.1 - np.mean([0.7, 0.71, 0.73]) == pytest.approx(effect.effect)
    assert "entropy" not in [one.name for one in mttp.compare(runs, lower)]


def test_without_updates_entropy_is_inconclusive(recorded: Recorded) -> None:
    """
    Of an evaluation nothing is said, and the reason is.
    """
    paths = recorded("base", suite(50)), recorded("new", suite(50))
    rule = mttp.gate(paths[1], rules={"aggregate": [{"metric": "entropy", "min": 0.5}]}).rules[0]
    compared = mttp.compare(*paths, metrics=["entropy"])["entropy"]

    reason = "no update of a training run states the entropy of the policy"
    assert ("inconclusive", reason) == (rule.verdict, rule.evidence)
    assert ("inconclusive", reason) == (compared.verdict, compared.reason)


@pytest.mark.parametrize(
    ("limit", "verdict", "overall"),
    [(0.3, "pass", "promote"), (0.5, "inconclusive", "inconclusive"), (0.9, "fail", "reject")],
)
def test_a_mean_is_judged_by_its_bound(recorded: Recorded, limit: float, verdict: str, overall: str) -> None:
    """
    Wilson's one-sided bounds of 50 of 100 are 0.419 and 0.581.
    """
    path = recorded("new", suite(50))

    found = mttp.gate(path, rules={"aggregate": [{"metric": "success", "min": limit}]})

    assert (verdict, overall) == (found.rules[0].verdict, found.verdict)
    assert 0.5 == found.rules[0].value


def test_samples_of_a_task_are_one_value(recorded: Recorded) -> None:
    """
    Ten tasks with ten samples each say as much as ten tasks, not as a hundred.
    """
    path = recorded("new", [{"task": f"t{n % 10}", "passed": n % 10 < 5} for n in range(100)])

    found = mttp.gate(path, rules={"aggregate": [{"metric": "success", "min": 0.4}]})["aggregate success min"]

    assert "inconclusive" == found.verdict
    assert "over 10 tasks" in found.method


def test_a_gain_and_a_margin_need_a_baseline(recorded: Recorded) -> None:
    """
    The error names the rules.
    """
    path = recorded("new", suite(50))

    with pytest.raises(StudyError, match=r"need a baseline, and none is given: return \(margin\), success"):
        mttp.gate(
            path,
            rules={"aggregate": [{"metric": "success", "gain": 0}, {"metric": "return", "margin": 0.1}]},
        )


def test_a_gain_is_judged_by_pairs(recorded: Recorded) -> None:
    """
    Thirty tasks gained and none lost are more than 10 %, and not more than 40 %.
    """
    base, new = recorded("base", suite(30)), recorded("new", suite(60))
    rules = {"aggregate": [{"metric": "success", "gain": gain} for gain in (0.1, 0.28, 0.4)]}

    found = mttp.gate(new, rules=rules, baseline=base)

    assert ["pass", "inconclusive", "fail"] == [rule.verdict for rule in found.rules[:3]]
    assert ["data missing", "data errors"] == [rule.name for rule in found.rules[3:5]]


def test_less_is_better_for_tokens_and_times(recorded: Recorded, tmp_path: Path) -> None:
    """
    A candidate with fewer tokens gains.
    """
    paths = []
    for name, count in (("base", 20), ("new", 10)):
        paths.append(str(tmp_path / f"{name}.jsonl"))
        with mttp.configure(f"file://{paths[-1]}", run_id=name):
            for task in range(30):
                with mttp.episode(env="m", task=f"t{task}") as episode, episode.step() as step:
                    step.tokens([1] * (count + task % (3 if name == "new" else 4)))
    rules = {
        "aggregate": [{"metric": "tokens", "gain": 5}, {"metric": "tokens", "max": 12}],
        "service": [{"metric": "tokens", "max_ratio": 0.6}, {"metric": "tokens", "max_ratio": 0.4}],
    }

    found = mttp.gate(paths[1], rules=rules, baseline=paths[0])

    assert ["pass", "pass", "pass", "fail"] == [rule.verdict for rule in found.rules[:4]]
    assert math.isclose(11 / found.rules[2].value, 21.4, abs_tol=0.1) if found.rules[2].value else False


def test_a_protected_slice_may_not_get_worse(recorded: Recorded) -> None:
    """
    The whole gets better, one split gets worse: the gate names it.
    """
    base = recorded("base", [{**one, "passed": one["split"] == "easy"} for one in suite(0)])
    new = recorded(
        "new", [{**one, "passed": one["split"] == "hard" or n < 20} for n, one in enumerate(suite(0))]
    )
    rules = {
        "aggregate": [{"metric": "success", "gain": 0}],
        "protected": [{"by": "split", "metric": "success", "margin": 0.1}],
    }

    found = mttp.gate(new, rules=rules, baseline=base)

    assert {
        "aggregate success gain": "inconclusive",
        "protected split=easy success": "fail",
        "protected split=hard success": "pass",
    } == {name: verdict for name, verdict in verdicts(found).items() if "data" not in name}
    assert "reject" == found.verdict


def test_not_significantly_worse_is_no_pass(recorded: Recorded) -> None:
    """
    Four tasks are too few for a margin of 2 %.
    """
    base, new = recorded("base", suite(2, 4)), recorded("new", suite(2, 4))
    rules = {"protected": [{"by": "split", "slice": "hard", "metric": "success", "margin": 0.02}]}

    assert "inconclusive" == mttp.gate(new, rules=rules, baseline=base).verdict


def test_a_focus_slice_must_get_better(recorded: Recorded) -> None:
    """
    By more than the gain that is asked for.
    """
    base, new = recorded("base", suite(10)), recorded("new", suite(90))
    rules = {
        "focus": [
            {"by": "split", "slice": "hard", "metric": "success"},
            {"by": "split", "slice": "easy", "metric": "success", "gain": 0.99},
        ]
    }

    found = mttp.gate(new, rules=rules, baseline=base)

    assert ["pass", "fail"] == [rule.verdict for rule in found.rules[:2]]


def test_a_slice_that_is_not_there_fails(recorded: Recorded) -> None:
    """
    With the nearest one.
    """
    base, new = recorded("base", suite(10)), recorded("new", suite(90))
    rules = {"focus": [{"by": "split", "slice": "hrad", "metric": "success"}]}

    found = mttp.gate(new, rules=rules, baseline=base).rules[0]

    assert "fail" == found.verdict
    assert "is in this slice; did you mean 'hard'?" in found.evidence


@pytest.mark.parametrize(("n", "verdict"), [(58, "inconclusive"), (59, "pass")])
def test_no_failure_among_n_is_bounded(recorded: Recorded, n: int, verdict: str) -> None:
    """
    The rule of three, exactly: 0 of 59 is at most 5 % with 95 % confidence.
    """
    episodes = [{"reward": 1.0, "scoring": {"components": {"no_leak": 1.0}}} for _ in range(n)]

    found = mttp.gate(recorded("new", episodes), rules={"safety": [{"check": "no_leak", "max": 0.05}]})

    assert verdict == found.rules[0].verdict
    assert math.isclose(1 - 0.05 ** (1 / n), found.rules[0].bound or 0)


def test_a_safety_cap_counts_unscored_episodes_as_failed(recorded: Recorded) -> None:
    """
    With examples.
    """
    scored = {"reward": 1.0, "scoring": {"components": {"no_leak": 1.0}}}
    leaked = {"reward": 1.0, "scoring": {"components": {"no_leak": 0.0}}}
    path = recorded("new", [*[scored] * 60, *[{"reward": 1.0}] * 20, *[leaked] * 20])

    found = mttp.gate(path, rules={"safety": [{"check": "no_leak", "max": 0.05}]}).rules[0]

    assert ("fail", 0.4, 5) == (found.verdict, found.value, len(found.episodes))
    assert "20 not scored, counted as failed" in found.evidence


def test_a_penalty_fails_below_zero(recorded: Recorded) -> None:
    """
    By `below`.
    """
    path = recorded("new", [{"reward": 1.0, "scoring": {"components": {"rude": 0.0}}}] * 60)

    found = mttp.gate(path, rules={"safety": [{"check": "rude", "max": 0.05, "below": 0}]})

    assert "promote" == found.verdict


def test_an_unknown_check_fails(recorded: Recorded) -> None:
    """
    With the nearest one.
    """
    path = recorded("new", [{"reward": 1.0, "scoring": {"components": {"no_leak": 1.0}}}] * 5)

    found = mttp.gate(path, rules={"safety": [{"check": "noleak", "max": 0.05}]}).rules[0]

    assert "fail" == found.verdict
    assert "did you mean 'no_leak'?" in found.evidence


def test_hacking_is_high_reward_with_low_quality(recorded: Recorded) -> None:
    """
    Both conditions at once.
    """
    good = {"reward": 1.0, "scoring": {"components": {"correct": 1.0}}}
    hacked = {"reward": 1.0, "scoring": {"components": {"correct": 0.0}}}
    path = recorded("new", [*[good] * 80, *[hacked] * 20])
    rules = {
        "hacking": [
            {"when": ["reward >= 0.8", "components.correct < 0.5"], "max": limit} for limit in (0.05, 0.3)
        ]
    }

    found = mttp.gate(path, rules=rules)

    assert ["fail", "pass"] == [rule.verdict for rule in found.rules[:2]]
    assert 0.2 == found.rules[0].value


def test_percentiles_of_times(recorded: Recorded) -> None:
    """
    An upper bound of the 95th percentile needs 59 episodes.
    """
    rules = {"service": [{"metric": "duration", "percentile": 95, "max": 60}]}
    few, many = recorded("few", suite(5, 58)), recorded("many", suite(5, 59))

    assert ["inconclusive", "promote"] == [mttp.gate(path, rules=rules).verdict for path in (few, many)]


def test_missing_data_fail_a_rule(recorded: Recorded) -> None:
    """
    Each rule whose metric no episode has.
    """
    path = recorded("new", [{"task": "a"}, {"task": "b"}])
    rules = {
        "aggregate": [{"metric": "return", "min": -1}],
        "service": [{"metric": "cost", "max": 1}],
        "data": {"missing": 0.5},
    }

    found = mttp.gate(path, rules=rules)

    assert {"fail", "pass"} == set(verdicts(found).values())
    assert "pass" == found["data episodes"].verdict
    assert ("fail", 1.0) == (found["data missing"].verdict, found["data missing"].value)
    assert "no episode has return" == found["aggregate return min"].evidence


def test_missing_values_are_the_worst(recorded: Recorded) -> None:
    """
    They never drop out silently.
    """
    path = recorded("new", [{"task": f"t{n}", "passed": True if n < 50 else None} for n in range(100)])

    found = mttp.gate(path, rules={"aggregate": [{"metric": "success", "min": 0.9}]}).rules[0]

    assert ("fail", 0.5) == (found.verdict, found.value)
    assert "50 of 100 missing, counted as 0" in found.evidence


def test_missing_values_can_break_a_gain(recorded: Recorded) -> None:
    """
    A gain over the tasks that have values is no pass if the others could undo it.
    """
    base = recorded("base", [{**one, "passed": n % 6 > 0} for n, one in enumerate(suite(0))])
    new = recorded("new", [{**one, "passed": True if n < 60 else None} for n, one in enumerate(suite(0))])
    rules = {"aggregate": [{"metric": "success", "gain": 0}]}

    found = mttp.gate(new, rules=rules, baseline=base).rules[0]

    assert "inconclusive" == found.verdict
    assert "0 and 40 missing, worst case" in found.evidence


def test_errors_are_counted(recorded: Recorded) -> None:
    """
    Episodes that ended by one, and gradings that failed.
    """
    broken = {"scoring": {"error": "the judge timed out"}}
    path = recorded("new", [*suite(5, 8), {"fails": True}, {"task": "x", **broken}])

    found = mttp.gate(path, rules={"data": {"errors": 0.1, "missing": 1}})["data errors"]

    assert ("fail", 0.2, 2) == (found.verdict, found.value, len(found.episodes))


def test_versions_are_pinned(recorded: Recorded) -> None:
    """
    By name and version, for each episode.
    """
    by = {"grader": "judge", "grader_version": "3"}
    path = recorded("new", [{"reward": 1.0, "scoring": by}] * 3)

    for pin, verdict in (("judge@3", "pass"), ("judge", "pass"), ("judge@4", "fail")):
        assert verdict == mttp.gate(path, rules={"pins": {"grader": pin}})["pins grader"].verdict
    assert "scored by none" in mttp.gate(path, rules={"pins": {"spec": "maths@1"}})["pins spec"].evidence


def test_sides_with_other_tasks_are_refused(recorded: Recorded) -> None:
    """
    Unless the rules allow it.
    """
    base, new = recorded("base", suite(5, 20)), recorded("new", suite(5, 30))
    rules: dict[str, Any] = {"aggregate": [{"metric": "success", "margin": 0.5}]}

    with pytest.raises(StudyError, match="differ in their tasks"):
        mttp.gate(new, rules=rules, baseline=base)
    assert mttp.gate(new, rules={**rules, "allow": ["tasks"]}, baseline=base).differences


def test_training_runs_count_by_their_last_episodes(recorded: Recorded, tmp_path: Path) -> None:
    """
    `window` of each run, one value a run: one run alone is no evidence.
    """
    paths = [tmp_path / f"train{seed}.jsonl" for seed in range(4)]
    for seed, path in enumerate(paths):
        with mttp.configure(f"file://{path}", run_id=f"train{seed}"):
            for number in range(40):
                with mttp.episode(env="cart") as episode:
                    episode.reward(float(number >= 20) + seed / 10)
            mttp.update(index=0, loss=1.0)
    rules = {"window": 20, "aggregate": [{"metric": "return", "min": 0.9}]}

    found = mttp.gate(paths, rules=rules)
    alone = mttp.gate(str(paths[0]), rules=rules)

    assert ("promote", 1.15) == (found.verdict, found.rules[0].value)
    assert ("training run: the last 20 finished episodes of each run",) == found.notes
    assert ("inconclusive", 1.0) == (alone.verdict, alone.rules[0].value)
    assert "kind='eval'" in alone.rules[0].evidence


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("agregate: []\n", r":1:1: agregate is not known; did you mean 'aggregate'\?"),
        (
            "aggregate:\n  - metric: return\n    mni: 1\n",
            r":3:5: aggregate.0.mni is not known; did you mean 'min'\?",
        ),
        ("aggregate:\n  - metric: return\n", r":2:5: return has no min, max, gain or margin"),
        ("aggregate:\n  - min: 0.5\n", r"aggregate.0.metric: Field required"),
        ("safety:\n  - check: a\n    max: 2\n", r":3:10: safety.0.max: .* it is 2"),
        ("safety:\n  - check: a\n    max: .nan\n", r"safety.0.max"),
        ("service:\n  - metric: tokens\n", r"tokens has no max or max_ratio"),
        (
            "service:\n  - metric: tokens\n    max_ratio: 1\n    percentile: 5\n",
            "percentile of tokens has no max",
        ),
        ("pins: {}\n", "pins has no spec, grader or env"),
        ("confidence: 0.9\n", "there is no rule"),
        ("- 1\n", "these are not promotion rules"),
        ("", "the document is empty"),
        ("aggregate: [", "expected"),
    ],
)
def test_rules_that_are_wrong(recorded: Recorded, tmp_path: Path, text: str, reason: str) -> None:
    """
    The message names file, line and what to write.
    """
    path = tmp_path / "rules.yaml"
    path.write_text(text)

    with pytest.raises(StudyError, match=reason):
        load_rules(path)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"aggregate": [{"metric": "retrun", "min": 1}]}, "did you mean 'return'"),
        ({"hacking": [{"when": ["reward"], "max": 0}]}, "'reward' is not a condition"),
        ({"hacking": [{"when": ["reward > x"], "max": 0}]}, "'reward > x' is not a condition"),
        ({"hacking": [{"when": ["pass@1 > 0"], "max": 0}]}, "no value of a single episode"),
    ],
)
def test_unknown_names_are_errors(recorded: Recorded, rules: dict[str, Any], reason: str) -> None:
    """
    With the nearest name.
    """
    with pytest.raises(StudyError, match=reason):
        mttp.gate(recorded("new", suite(5, 20)), rules=rules)


def test_a_metric_without_a_direction_can_not_gain(recorded: Recorded) -> None:
    """
    Neither longer nor shorter episodes are better.
    """
    base, new = recorded("base", suite(5)), recorded("new", suite(5))

    with pytest.raises(StudyError, match="give min or max"):
        mttp.gate(new, rules={"aggregate": [{"metric": "length", "gain": 0}]}, baseline=base)


def test_an_empty_recording_is_an_error(recorded: Recorded, tmp_path: Path) -> None:
    """
    And no gate that promotes.
    """
    (tmp_path / "empty.jsonl").write_text("")

    with pytest.raises(ReadError):
        mttp.gate(str(tmp_path / "empty.jsonl"), rules={"data": {}})
    with pytest.raises(ReadError, match="holds no episodes"):
        mttp.gate(recorded("none", []), rules={"data": {}})
    with pytest.raises(StudyError, match=r"nowhere\.yaml: can't read the file"):
        mttp.gate(recorded("new", suite(5)), rules="nowhere.yaml")


@pytest.mark.parametrize("setting", sorted(TEMPLATES))
def test_the_example_files_are_usable(recorded: Recorded, tmp_path: Path, setting: str) -> None:
    """
    As they are, and with every comment that is a rule.
    """
    path = tmp_path / "promotion.yaml"
    path.write_text(TEMPLATES[setting])
    base, new = recorded("base", suite(20)), recorded("new", suite(90))
    found = mttp.gate(new, rules=path, baseline=base)

    assert "promote" == found.verdict, found.rules

    head, confidence, body = TEMPLATES[setting].partition("confidence:")
    rows = [re.sub(r"^( *)# (?=[a-z_ -]+:)", r"\1", row) for row in body.split("\n")]
    path.write_text(head + confidence + "\n".join(rows))
    rules = load_rules(path)

    assert all((rules.aggregate, rules.protected, rules.service, rules.pins, rules.baseline, rules.allow))
    assert {"metric", "min", "gain", "margin"} >= {"metric", *rules.aggregate[0].model_fields_set}


def test_data_that_are_too_few_or_elsewhere(recorded: Recorded) -> None:
    """
    Tasks, runs and the environment are counted.
    """
    path = recorded("new", suite(50))
    rules = {"data": {"min_tasks": 100, "min_runs": 2}, "pins": {"env": "maths"}}
    found = mttp.gate(path, rules=rules)

    assert ("pass", "fail", "pass") == tuple(
        found[name].verdict for name in ("data tasks", "data runs", "pins env")
    )
    assert "fail" == mttp.gate(path, rules={"pins": {"env": "CartPole-v1"}})["pins env"].verdict


def test_abstentions_are_covered(recorded: Recorded) -> None:
    """
    Coverage is the share that was answered; accuracy is that of the answered, and none of them is missing.
    """
    abstained = {"scoring": {"status": "abstained"}}
    episodes = [{"task": f"t{n}", **({"passed": n < 70} if n < 80 else abstained)} for n in range(100)]
    rules = {
        "aggregate": [
            {"metric": "coverage", "min": 0.7},
            {"metric": "coverage", "min": 0.9},
            {"metric": "accuracy_when_answered", "min": 0.75},
        ],
        "data": {"missing": 0.3},
    }

    found = mttp.gate(recorded("new", episodes), rules=rules)

    assert [("pass", 0.8), ("fail", 0.8), ("pass", 0.875)] == [
        (rule.verdict, rule.value) for rule in found.rules[:3]
    ]
    assert "missing" not in found.rules[2].evidence


def test_missing_values_are_against_limits_and_ratios(tmp_path: Path) -> None:
    """
    A percentile counts them as more than any limit, a ratio as the least and the most that was seen.
    """
    paths = []
    for name in ("base", "new"):
        paths.append(str(tmp_path / f"{name}.jsonl"))
        with mttp.configure(f"file://{paths[-1]}", run_id=name, kind="eval"):
            for task in range(60):
                with mttp.episode(env="m", task=f"t{task}") as episode, episode.step() as step:
                    if name == "base" or task >= 12:
                        step.tokens([1] * (20 + (task + (name == "new")) % 7))
                    step.reward(1.0)
    service = [{"metric": "tokens", "percentile": 90, "max": 40}, {"metric": "tokens", "max_ratio": 1.04}]

    found = mttp.gate(paths[1], rules={"service": service}, baseline=paths[0])
    allowed = mttp.gate(paths[1], rules={"service": service, "allow": ["missing"]}, baseline=paths[0])

    assert ["fail", "inconclusive"] == [rule.verdict for rule in found.rules[:2]]
    assert "12 of 60 missing, counted as inf" in found.rules[0].evidence
    assert ["pass", "pass"] == [rule.verdict for rule in allowed.rules[:2]]
    assert all("left out, as allowed" in rule.evidence for rule in allowed.rules[:2])


def test_a_window_is_of_training_runs(recorded: Recorded) -> None:
    """
    The episodes of an evaluation all count.
    """
    path = recorded("new", suite(50))

    assert (
        0.5
        == mttp.gate(path, rules={"window": 10, "aggregate": [{"metric": "success", "min": 0}]})
        .rules[0]
        .value
    )


def test_a_result_is_plain_data(recorded: Recorded) -> None:
    """
    For JSON, and by name.
    """
    found = mttp.gate(recorded("new", suite(50)), rules={"aggregate": [{"metric": "success", "min": 0.3}]})

    assert ["promote", "pass"] == [found.to_dict()["verdict"], found.to_dict()["rules"][0]["verdict"]]
    assert "<GateResult: promote, 3 pass>" == repr(found)
    assert 2 == found.to_dict()["rules_version"]
    with pytest.raises(KeyError, match="there are aggregate success min"):
        found["success"]


# The bounds, beside scipy and simulations.


def test_share_bounds_are_clopper_pearson() -> None:
    """
    As scipy's exact interval with twice the error.
    """
    for count, n in ((0, 150), (3, 40), (40, 40)):
        interval = stats.binomtest(count, n).proportion_ci(0.9, method="exact")
        found = share_bounds([(int(place < count), 1) for place in range(n)], 0.95)

        assert math.isclose(interval.high, found.high or 0, abs_tol=1e-12)
        assert math.isclose(interval.low, found.low or 0, abs_tol=1e-12)
    none = share_bounds([(0, 1)] * 150, 0.95)
    assert round(none.high or 0, 4) == 0.0198  # published: 0 of 150 is at most 2 %


def test_mean_bounds_cover_at_their_confidence() -> None:
    """
    2,000 samples of 20 from a normal distribution; both bounds fail in about 5 %.
    """
    rng = np.random.default_rng(0)
    found = [mean_bounds(rng.normal(3, 2, (20, 1)).tolist(), 0.95) for _ in range(2_000)]

    for missed in (sum((one.low or 0) > 3 for one in found), sum((one.high or 0) < 3 for one in found)):
        assert 70 < missed < 130


def test_percentile_bounds_cover_at_their_confidence() -> None:
    """
    2,000 samples of 200 from a heavy-tailed distribution: at most 5 % miss, whatever the distribution.
    """
    rng, true = np.random.default_rng(0), float(stats.pareto(1.5).ppf(0.95))
    found = [percentile_bounds(rng.pareto(1.5, 200) + 1, 95, 0.95) for _ in range(2_000)]

    assert sum((one.high or math.inf) < true for one in found) <= 125
    assert sum((one.low or -math.inf) > true for one in found) <= 125


def test_ratio_bounds_cover_near_their_confidence() -> None:
    """
    Pairs of 60 tasks.
    """
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(150):
        base = rng.gamma(4, 25, 60)
        missed += (ratio_bounds(base, base * rng.normal(1.1, 0.3, 60), 0.95, paired=True).high or 0) < 1.1

    assert missed <= 18


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0]])
def test_too_few_values_have_no_bound(values: list[float]) -> None:
    """
    An interval of width zero would claim more than they show.
    """
    found = mean_bounds([[value] for value in values], 0.95)

    assert (None, None) == (found.low, found.high)
