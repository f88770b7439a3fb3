"""Recorded episodes scored by another spec: new beside old, flips, ranks and advantages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import ReadError, SpecError, StudyError

SPEC = """
mttp: reward-spec/1
name: maths
version: 2.0.0
inputs: {answer: string, truth: string}
components:
  - {name: correct, kind: verifier, use: "graders:correct"}
"""
RELATIVE = """
mttp: reward-spec/1
name: better
version: 1.0.0
inputs: {answer: string}
combine: weighted_sum
components:
  - {name: longest, kind: judge, use: "graders:longest", relative: true}
"""


@pytest.fixture(autouse=True)
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec and its code in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("graders.py").write_text(
        "def correct(answer, truth):\n"
        "    if answer == 'crash': raise RuntimeError('no judge')\n"
        "    return float(answer == truth)\n"
        "def longest(answer):\n"
        "    return [float(len(one)) for one in answer]\n"
    )
    Path("new.yaml").write_text(SPEC)


def record(episodes: list[dict[str, Any]], path: str = "run.jsonl", run: str = "r1") -> str:
    """Record episodes; `reward` and `verdict` are the scoring, None for none."""
    with mttp.configure(f"file://{path}", run_id=run):
        for facts in episodes:
            stated = dict(facts)
            reward, verdict = stated.pop("reward", None), stated.pop("verdict", None)
            with mttp.episode(env="maths", **stated) as episode:
                if reward is not None:
                    episode.reward(reward, verdict=verdict)
    return path


def invoke(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["rescore", *arguments])
    assert code == done.exit_code, done.output
    return done


def answered(answer: str, **facts: Any) -> dict[str, Any]:
    return {"inputs": {"answer": answer, "truth": "4"}, **facts}


def test_the_recorded_reward_stays() -> None:
    """
    The new one is a late score beside it.
    """
    path = record([answered("4", reward=0.25), answered("5", reward=0.75)])

    found = mttp.rescore(path, spec="new.yaml")

    assert [0.25, 0.75] == [one.reward.value for one in found.episodes]
    assert [1.0, 0.0] == [one.scores["maths 2.0.0"].value for one in found.episodes]
    assert [(0.25, 1.0), (0.75, 0.0)] == [(one.old, one.new) for one in found.changes]
    assert (0.5, 0.5) == found.means
    assert isinstance(found, mttp.Recording)


def test_verdicts_flip() -> None:
    """
    Only where both are known.
    """
    path = record(
        [
            answered("4", reward=0.0, verdict="fail"),
            answered("4", reward=1.0, verdict="pass"),
            answered("5", reward=1.0, verdict="pass"),
            answered("5", reward=1.0),
        ]
    )

    found = mttp.rescore(path, spec="new.yaml")

    assert [("fail", "pass"), ("pass", "fail")] == [(one.old_verdict, one.new_verdict) for one in found.flips]


def test_advantages_in_groups_change_their_sign() -> None:
    """
    Ties share a rank; an episode outside of a group has neither rank nor advantage.
    """
    path = record(
        [
            answered("4", group="a", reward=0.1),
            answered("4", group="a", reward=0.1),
            answered("five", group="a", reward=0.4),
            answered("4", reward=0.0),
        ]
    )

    found = mttp.rescore(path, spec="new.yaml").changes

    assert [(2, 1), (2, 1), (1, 3), (None, None)] == [(one.old_rank, one.new_rank) for one in found]
    assert [True, True, True, False] == [one.reversed for one in found]
    assert pytest.approx(-0.1) == found[0].old_advantage


def test_a_group_without_variance_has_no_sign() -> None:
    """
    Nothing is reversed where all rewards are equal.
    """
    path = record([answered("4", group="a", reward=1.0), answered("5", group="a", reward=1.0)])

    assert () == mttp.rescore(path, spec="new.yaml").reversals


def test_relative_components_score_recorded_groups() -> None:
    """
    An episode outside of a group is counted.
    """
    Path("better.yaml").write_text(RELATIVE)
    path = record([answered("4", group="a"), answered("four", group="a"), answered("4")])

    found = mttp.rescore(path, spec="better.yaml")

    assert (2, 1, 0) == (len(found.changes), found.without_group, found.without_inputs)


def test_an_invalid_reward_is_no_number() -> None:
    """
    Its reason is counted.
    """
    path = record([answered("crash", reward=1.0), answered("4", reward=1.0)])

    found = mttp.rescore(path, spec="new.yaml")

    assert (None, 1.0) == (found.changes[0].new, found.changes[1].new)
    assert ["correct: RuntimeError: no judge"] == list(found.invalid)
    assert (1.0, 1.0) == found.means


def test_step_rewards_count_where_nothing_else_was_rewarded() -> None:
    """
    The return is the old reward.
    """
    inputs = {"answer": "4", "truth": "4"}
    with mttp.configure("file://steps.jsonl"), mttp.episode(inputs=inputs) as episode:
        for reward in (0.25, 0.5):
            with episode.step() as step:
                step.reward(reward)

    assert 0.75 == mttp.rescore("steps.jsonl", spec="new.yaml").changes[0].old


def test_episodes_without_inputs_are_counted() -> None:
    """
    If there are no others that is an error.
    """
    path = record([answered("4", reward=1.0), {"reward": 1.0}])
    nothing = record([{"reward": 1.0}], "nothing.jsonl", "r2")

    assert 1 == mttp.rescore(path, spec="new.yaml").without_inputs
    with pytest.raises(StudyError, match="none of 1 episodes recorded the inputs answer, truth, which maths"):
        mttp.rescore(nothing, spec="new.yaml")


def test_bad_input_is_an_error() -> None:
    """
    Of the recording and of the spec.
    """
    path = record([answered("4")])

    with pytest.raises(ReadError):
        mttp.rescore("missing.jsonl", spec="new.yaml")
    with pytest.raises(SpecError, match=r"missing\.yaml: can't read the file"):
        mttp.rescore(path, spec="missing.yaml")


def test_values_are_rescored_without_files() -> None:
    """
    A Recording and a RewardSpec.
    """
    recording = mttp.read(record([answered("4", reward=0.0)]))

    found = mttp.rescore(recording, spec=mttp.RewardSpec.load("new.yaml"))

    assert "<RescoredRecording of 1 episodes: 1 scored by maths 2.0.0, 0 flips>" == repr(found)


def test_scores_are_written_beside_the_recording() -> None:
    """
    Reading gives them back with their grades, in the runs that were there; the recording does not change.
    """
    path = record([answered("4", reward=0.0), answered("5", reward=1.0, verdict="pass")])
    record([answered("4", reward=0.5)], run="r2")
    before = Path(path).read_bytes()

    done = invoke(path, "--spec", "new.yaml", "--write")

    found = mttp.read(path)
    assert "wrote 3 scores to run." in done.stdout
    assert before == Path(path).read_bytes()
    assert [] == found.problems
    assert ["r1", "r2"] == sorted(run.id for run in found.runs)
    assert [1.0, 0.0, 1.0] == [one.scores["maths 2.0.0"].value for one in found.episodes]
    assert [{"correct": 1.0}] == [found.episodes[0].scores["maths 2.0.0"].components]
    assert [0.0, 1.0, 0.5] == [one.reward.value for one in found.episodes]


def test_a_new_run_has_the_new_rewards() -> None:
    """
    Each episode links to the old one, so that both runs can be compared.
    """
    path = record([answered("4", reward=0.0, task="a"), answered("5", reward=1.0, task="b"), {"reward": 1.0}])
    old = mttp.read(path)

    shown = invoke(path, "--spec", "new.yaml", "--out", "new run.jsonl").stdout
    again = invoke(path, "--spec", "new.yaml", "--out", "new run.jsonl", code=2).stderr

    new = mttp.read("new run.jsonl")
    assert "wrote 2 episodes to new run.jsonl" in shown
    assert "new run.jsonl exists already" in again
    assert [] == new.problems
    assert [1.0, 0.0] == [one.return_ for one in new]
    assert ["maths", "maths"] == [one.reward.spec and one.reward.spec.name for one in new]
    assert [one.trace_id for one in old[:2]] == [one.metadata["rescored_episode"] for one in new]
    links = [link for span in mttp.scan("new run.jsonl", arrays=True) for link in span.links]
    assert {(one.trace_id, one.span_id) for one in old[:2]} == {(one.trace_id, one.span_id) for one in links}
    found = mttp.compare(mttp.read(path).filter(task=["a", "b"]), new, allow=["spec"])
    assert (0.5, 0.5) == (found["return"].base, found["return"].candidate)


def test_it_is_recorded_in_a_session_of_ones_own() -> None:
    """
    By `record`.
    """
    found = mttp.rescore(record([answered("4")]), spec="new.yaml")

    with mttp.configure("memory://") as session:
        assert 1 == found.record()
        assert 1.0 == mttp.read(session)[0].return_


def test_the_command_shows_what_changes() -> None:
    """
    --strict exits with 1 on a flip, --json is one document.
    """
    path = record([answered("5", reward=1.0, verdict="pass"), answered("4", reward=1.0, verdict="pass")])

    shown = invoke(path, "--spec", "new.yaml").stdout
    strict = invoke(path, "--spec", "new.yaml", "--strict", code=1)
    document = json.loads(invoke(path, "--spec", "new.yaml", "--json").stdout)

    assert "1 of 2 rewards change, 1 verdict flip" in shown
    assert "pass → fail" in shown
    assert "maths 2.0.0: 1 of 2 rewards change" in strict.stderr
    assert (2, 1, 1, None) == tuple(document[key] for key in ("episodes", "changed", "flips", "file"))


# Inputs from the steps.

CHAT = [{"role": "system", "content": "Sums."}, {"role": "user", "content": "2+2?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
TURNS = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
    {"role": "assistant", "content": "It is 4"},
]


def seen(*inputs: str, name: str = "seen", **types: str) -> tuple[mttp.RewardSpec, list[dict[str, Any]]]:
    """A spec that takes these inputs, and the samples that it was given."""
    samples: list[dict[str, Any]] = []

    def look(**values: Any) -> float:
        samples.append(values)
        return 1.0

    stated = {**dict.fromkeys(inputs, "any"), **types}
    component = {"name": "look", "kind": "rubric", "use": look, "version": "1"}
    spec = mttp.RewardSpec(
        name=name, version="1.0.0", inputs=stated, combine="weighted_sum", components=[component]
    )
    return spec, samples


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("is_called", [True, False])
def test_a_chat_is_prompt_completion_messages_and_tool_calls(is_whole: bool, is_called: bool) -> None:
    """
    Whether each step has the whole chat or what is new, and whether tool calls are recorded or only messages.
    """
    spec, samples = seen("prompt", "completion", "messages", "tool_calls")
    with mttp.configure("file://chat.jsonl"), mttp.episode() as episode:
        with episode.step() as step:
            step.observation(CHAT)
            step.action(TURNS[0])
            if is_called:
                with step.tool_call("add", id="c1", arguments='{"a": 2, "b": 2}') as call:
                    call.result("4")
        with episode.step() as step:
            step.observation([*CHAT, *TURNS[:2]] if is_whole else TURNS[1:2])
            step.action(TURNS[2])

    mttp.rescore("chat.jsonl", spec=spec)

    called = {"id": "c1", "name": "add", "arguments": {"a": 2, "b": 2}, "result": "4"}
    assert [
        {"prompt": CHAT, "completion": TURNS, "messages": [*CHAT, *TURNS], "tool_calls": [called]}
    ] == samples


def test_text_is_text_and_a_chat_is_its_last_text_for_a_string() -> None:
    """
    Pieces of a text are joined; a recorded input precedes that of the steps.
    """
    spec, samples = seen(prompt="string", completion="string")
    with mttp.configure("file://text.jsonl"):
        for inputs, steps in (
            (None, [("2+2=", "4")]),
            (None, [("2+2=", "is"), (" so", " 4")]),
            (None, [(CHAT, TURNS[2])]),
            (None, [(CHAT, "4")]),
            ({"completion": "5"}, [("2+2=", "4")]),
        ):
            with mttp.episode(inputs=inputs) as episode:
                for observation, action in steps:
                    with episode.step() as step:
                        step.observation(observation)
                        step.action(action)

    mttp.rescore("text.jsonl", spec=spec)

    assert [
        ("2+2=", "4"),
        ("2+2=", "is so 4"),
        ("2+2?", "It is 4"),
        ("2+2?", "4"),
        ("2+2=", "5"),
    ] == [(one["prompt"], one["completion"]) for one in samples]


def test_an_input_that_was_not_recorded_is_one_error() -> None:
    """
    It names the input and what there is; the command exits with 2, and changes nothing.
    """
    path = record([answered("4", reward=0.5), answered("5", reward=0.5)])
    Path("more.yaml").write_text(
        SPEC.replace("truth: string}", "truth: string, level: number, why: 'string?'}")
    )

    said = invoke(path, "--spec", "more.yaml", "--write", code=2).stderr

    assert (
        "none of 2 episodes recorded the input level, which maths 2.0.0 needs; recorded inputs: answer, truth"
        in said
    )
    assert ["run.jsonl"] == [file.name for file in Path().glob("*.jsonl")]


def test_an_argument_of_a_function_is_an_input_too() -> None:
    """
    Where the spec states no inputs, and for a function that takes batches.
    """

    def ahead(answers: list[str], levels: list[int]) -> list[float]:
        return [1.0] * len(answers)

    component = {"name": "ahead", "kind": "rubric", "use": ahead, "arity": "batch", "version": "1"}
    spec = mttp.RewardSpec(name="s", version="1.0.0", combine="weighted_sum", components=[component])

    with pytest.raises(StudyError, match="the input level, which s"):
        mttp.rescore(record([answered("4")]), spec=spec)


def test_an_episode_that_cannot_be_scored_is_not_changed() -> None:
    """
    Neither one that lacks an input, nor one whose component raises.
    """
    path = record([answered("crash", reward=1.0), {"inputs": {"answer": "4"}, "reward": 1.0}])
    record([answered("4", reward=1.0)])

    found = mttp.rescore(path, spec="new.yaml")
    shown = invoke(path, "--spec", "new.yaml").stdout

    assert (0, {"truth": 1}, 1) == (
        sum(one.changed for one in found.changes),
        dict(found.lacking),
        found.without_inputs,
    )
    assert "0 of 2 rewards change" in shown
    assert "Not scored\nepisodes  reason\n       1  did not record truth\n" in shown


def test_rounding_of_a_trainer_is_no_change() -> None:
    """
    A difference beyond it is one.
    """
    Path("graders.py").write_text("def correct(answer, truth):\n    return 0.1\n")
    path = record([answered("4", reward=0.10000000149011612), answered("4", reward=0.1000001)])

    Path("sum.yaml").write_text(f"{SPEC}combine: weighted_sum\n")

    assert [False, True] == [one.changed for one in mttp.rescore(path, spec="sum.yaml").changes]


def test_a_spec_is_checked_on_a_run() -> None:
    """
    An input that all episodes lack is an error, one that some lack a warning.
    """
    path = record([answered("4"), {"inputs": {"answer": "4"}}])
    Path("more.yaml").write_text(SPEC.replace("truth: string}", "truth: string, level: number}"))

    def check(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["spec", "check", *arguments, "--on", path, "--json"])
        return done.exit_code, [
            (one["severity"], one["reason"])
            for one in json.loads(done.stdout)["findings"]
            if one["rule"] == "unrecorded-input"
        ]

    again = "so they can't be scored again"
    some = ("warning", f"1 of 2 recorded episodes lack the input truth, {again}")
    assert (0, [some]) == check("new.yaml")
    code, found = check("more.yaml")
    assert (1, {some, ("error", f"2 of 2 recorded episodes lack the input level, {again}")}) == (
        code,
        {*found},
    )
