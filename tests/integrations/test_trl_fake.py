"""TRL's integration with a stand-in for its trainers, which always runs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from integrations.fake_trl import GRPOTrainer, RLOOTrainer, Trainer
from integrations.specimen import COMPLETIONS, completed, pay
from opentelemetry import context as otel_context

import mttp
from mttp.errors import InstrumentError
from mttp.integrations import patching
from mttp.integrations.trl import completions, library, recorder

ROWS = [{"prompt": "2+2=", "answer": "4"}] * 2 + [{"prompt": "3+3=", "answer": "6"}] * 2
SCRIPT = ["4.", "five", "6.", "six"]


def correct(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Return 1 for the answer, else 0."""
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


def short(completions: list[str], **_: Any) -> list[float]:
    """Return less for each character."""
    return [1 - len(text) / 4 for text in completions]


def trainer(*functions: Any, kind: type[Trainer] = GRPOTrainer, **options: Any) -> Trainer:
    """Return a trainer with these reward functions."""
    return kind(list(functions or (correct, short)), SCRIPT, ROWS, **options)


def by_row(session: mttp.Session) -> list[mttp.Episode]:
    """Return the episodes in the trainer's order."""
    return sorted(mttp.read(session), key=lambda episode: episode.index or 0)


def test_each_completion_is_an_episode(session: mttp.Session) -> None:
    """
    With prompt, tokens, dataset columns, reward components, and how it ended.
    """
    teacher = trainer(weights=[1.0, 0.5])
    mttp.instrument(teacher)

    teacher.train(1)

    first, second, *_ = episodes = by_row(session)
    step = first.steps[0]
    assert 4 == len(episodes)
    assert ("2+2=", "4", {"answer": "4"}) == (step.observation, step.action, first.inputs)
    assert step.tokens is not None
    assert ([50, 43, 50, 61], [52, 1]) == (step.tokens.prompt_ids.tolist(), step.tokens.ids.tolist())
    assert ({"correct": 1.0, "short": 0.75}, 1.375) == (first.reward.components, first.reward.value)
    assert {"correct": 1.0, "short": 0.5} == first.reward.weights
    assert ((True, False), (False, True)) == (
        (first.terminated, first.truncated),
        (second.terminated, second.truncated),
    )
    assert ("train", "model", "0", "batch") == (
        first.split,
        first.policy,
        first.policy_version_start,
        first.timing,
    )


def test_the_specimen(session: mttp.Session) -> None:
    """
    The shared completions read back, without log probabilities.
    """

    def specimen(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        return [*map(pay, prompts, completions)]

    script = [found.text + ("." if found.ended else "") for found in COMPLETIONS]
    rows = [{"prompt": found.prompt} for found in COMPLETIONS]
    teacher = GRPOTrainer([specimen], script, rows, generations=len(rows))
    mttp.instrument(teacher)

    teacher.train(1)

    expected = [replace(found, paid=_float32(found.paid), logprobs=None) for found in COMPLETIONS]
    assert expected == [completed(episode) for episode in by_row(session)]


def _float32(value: float | None) -> float | None:
    """Return a number as float32, as in TRL's tensors."""
    return None if value is None else float(np.float32(value))


def exact(completion: str, answer: str) -> float:
    """Return whether the answer is right; raises for one without digits."""
    return float(int(completion) == int(answer))


def spec(**fields: Any) -> mttp.RewardSpec:
    """Return a spec with a verifier and a check."""
    return mttp.RewardSpec(
        name="sums",
        version="1.0.0",
        inputs={"completion": "string", "answer": "string"},
        components=[
            {"name": "exact", "kind": "verifier", "use": exact, "range": [0, 1]},
            {"name": "clean", "kind": "check", "use": no_six},
        ],
        **fields,
    )


def no_six(completion: str) -> bool:
    """Return whether there is no six."""
    return completion != "6"


def test_a_reward_spec_as_reward_function(session: mttp.Session) -> None:
    """
    Components, checks and identity are recorded; an invalid sample has no reward, and not zero.
    """
    sums = spec()
    teacher = trainer(sums.for_trl())
    mttp.instrument(teacher)

    teacher.train(1)

    rewards = [episode.reward for episode in by_row(session)]
    assert [1.0, None, 0.0, None] == [reward.value for reward in rewards]
    assert [(), (), ("clean",), ()] == [reward.failed_checks for reward in rewards]
    assert {"exact": 1.0, "clean": 0.0} == rewards[2].components
    assert ("error", "error") == (rewards[1].status, rewards[1].component_statuses["exact"])
    assert [sums.identity] * 4 == [reward.spec for reward in rewards]
    assert ["sums"] == teacher.reward_func_names
    session.flush()
    assert 1 == len(mttp.read(session).runs[0].spec_documents)


def test_a_spec_is_one_function_among_others(session: mttp.Session) -> None:
    """
    Then it is one component, with its own components as parts.
    """
    teacher = trainer(spec(on_invalid="floor").for_trl(), short, weights=[1.0, 0.5])
    mttp.instrument(teacher)

    teacher.train(1)

    reward = by_row(session)[0].reward
    (grade,) = [grade for grade in reward.grades if grade.name == "sums"]
    assert ({"sums": 1.0, "short": 0.75}, 1.375) == (reward.components, reward.value)
    assert ["exact", "clean"] == [part.name for part in grade.parts]


@pytest.mark.parametrize("alone", [True, False])
def test_a_spec_s_floor_is_not_a_score(session: mttp.Session, alone: bool) -> None:
    """
    TRL gets the floor; the component has the status instead, and group statistics leave it out.
    """
    paying = spec(on_invalid="floor", floor=-1.0).for_trl()
    teacher = trainer(paying) if alone else trainer(paying, short, weights=[1.0, 0.0])
    mttp.instrument(teacher)

    teacher.train(1)

    floored = by_row(session)[1].reward
    assert (-1.0, "error" if alone else "partial") == (floored.value, floored.status)
    assert "error" == floored.component_statuses["exact" if alone else "sums"]
    assert [1, 1] == [group.valid_count for group in mttp.read(session).groups]


def test_groups_have_the_trainers_advantages(session: mttp.Session) -> None:
    """
    The completions of a prompt are a group, with an id that no other batch has.
    """
    teacher = trainer()
    mttp.instrument(teacher)

    teacher.train(2)

    recording = mttp.read(session)
    stated = np.concatenate([group.advantages for group in recording.groups])
    assert (4, 4) == (len(recording.groups), len({group.id for group in recording.groups}))
    assert list(teacher._logs["advantages"]) == pytest.approx(stated.tolist())
    assert {("mean_std", "group", 1, 2)} == {
        (group.normalization, group.scope, group.ddof, group.size) for group in recording.groups
    }
    assert [] == recording.problems


def test_updates_say_what_they_learned_from(session: mttp.Session) -> None:
    """
    Loss, gradient norm, learning rate and TRL's own metrics, with the consumed groups.
    """
    teacher = trainer()
    mttp.instrument(teacher)

    teacher.train(2)

    first, second = mttp.read(session).updates
    assert (0, 1) == (first.index, second.index)
    assert ("0", "1") == (first.policy_version_before, first.policy_version_after)
    assert (0.25, 0.5, 0.5, 0.125) == (
        first.grad_norm,
        first.learning_rate,
        first.entropy,
        first.clip_fraction,
    )
    assert 0.01 == pytest.approx(first.loss, abs=1e-6)
    assert (4, 2, (0, 0.0, 0)) == (
        first.consumed,
        len(first.groups),
        (first.lag_min, first.lag_mean, first.lag_max),
    )


def test_a_batch_that_several_updates_share_is_kept_apart(session: mttp.Session) -> None:
    """
    TRL shuffles and splits a batch; each update names its part, and its lag.
    """
    teacher = trainer(steps_per_generation=2)
    mttp.instrument(teacher)

    teacher.train(2)

    recording = mttp.read(session)
    last, first = by_row(session)[2:], by_row(session)[:2]
    assert [(0,), (0,)] == [episode.consumed_by for episode in last]
    assert [(1,), (1,)] == [episode.consumed_by for episode in first]
    assert [(0, 2), (1, 2)] == [(update.lag_max, update.consumed) for update in recording.updates]


def test_parts_of_groups_are_named_episode_by_episode(session: mttp.Session) -> None:
    """
    An update that uses some of a group's members does not name the group.
    """
    teacher = trainer(generations=4, steps_per_generation=2)
    mttp.instrument(teacher)

    teacher.train(2)

    assert [((), 2), ((), 2)] == [
        (update.groups, len(update.episodes)) for update in mttp.read(session).updates
    ]


def test_none_and_nan_are_no_zeros(session: mttp.Session) -> None:
    """
    A function may abstain or fail; the reward is the sum of the others, and partial.
    """

    def moody(completions: list[str], **_: Any) -> list[float | None]:
        return [None, math.nan, 0.0, None]

    def absent(completions: list[str], **_: Any) -> list[float | None]:
        return [1.0, None, None, None]

    teacher = trainer(moody, absent)
    mttp.instrument(teacher)

    teacher.train(1)

    rewards = [episode.reward for episode in by_row(session)]
    assert [
        ("partial", 1.0, {"absent": 1.0}, {"moody": "abstained"}),
        ("error", None, {}, {"moody": "error", "absent": "abstained"}),
        ("partial", 0.0, {"moody": 0.0}, {"absent": "abstained"}),
        ("abstained", None, {}, {"moody": "abstained", "absent": "abstained"}),
    ] == [(one.status, one.value, one.components, one.component_statuses) for one in rewards]
    assert {} == dict(session.stats.faults)


@pytest.mark.parametrize("kind", [GRPOTrainer, RLOOTrainer])
def test_the_recording_follows_the_convention(session: mttp.Session, kind: type[Trainer]) -> None:
    """
    `mttp check` finds only the failed rewards and their faults, with abstentions and evaluations.
    """
    teacher = trainer(correct, lambda **_: [None, math.nan, 0.0, math.inf], kind=kind)
    mttp.instrument(teacher)

    teacher.train(2)
    teacher.evaluate()

    shown = {"grading_failed", "recorded_fault", "total_includes_failed_component"}
    assert shown == set(mttp.check(session).ids)
    assert 12 == len(mttp.read(session).episodes)


def test_functions_of_one_name_are_kept_apart(session: mttp.Session) -> None:
    """
    Two lambdas are two components.
    """
    teacher = trainer(lambda completions, **_: [1.0] * 4, lambda completions, **_: [2.0] * 4)
    mttp.instrument(teacher)

    teacher.train(1)

    assert {"<lambda>": 1.0, "<lambda>_2": 2.0} == by_row(session)[0].reward.components


def test_what_functions_log_is_kept_with_the_completion(session: mttp.Session) -> None:
    """
    A column of `log_extra` is no reward: numbers are metrics, others metadata, and the trainer gets both too.
    """

    def logging_(completions: list[str], log_extra: Any, **_: Any) -> list[float]:
        log_extra("first", [text[0] for text in completions])
        log_extra("length", [7] * len(completions))
        return [0.0] * len(completions)

    teacher = trainer(logging_)
    mttp.instrument(teacher)

    teacher.train(1)

    assert ["4", "f", "6", "s"] == [episode.metadata["first"] for episode in by_row(session)]
    assert [({"length": 7.0}, 0.0)] * 4 == [(one.metrics, one.return_) for one in by_row(session)]
    assert {"first": ["4", "f", "6", "s"], "length": [7] * 4} == teacher._extra


@pytest.mark.parametrize("odd", [float("inf"), -float("inf")])
def test_an_infinite_component_makes_the_reward_an_error(session: mttp.Session, odd: float) -> None:
    """
    It is no number, and is not left out of the sum.
    """
    teacher = trainer(lambda completions, **_: [odd, 1.0, 1.0, 1.0], lambda completions, **_: [2.0] * 4)
    mttp.instrument(teacher)

    teacher.train(1)

    first, second, *_ = by_row(session)
    assert (None, "error", 3.0) == (first.reward.value, first.reward.status, second.reward.value)


def test_rloo_s_adjusted_rewards(session: mttp.Session) -> None:
    """
    The reward is the original one; the trained reward is clipped, minus the divergence from the reference.
    """
    teacher = trainer(kind=RLOOTrainer)
    teacher.beta, teacher.reward_clip_range = 0.1, (0.0, 1.0)  # type: ignore[attr-defined]
    mttp.instrument(teacher)

    teacher.train(1)

    first = by_row(session)[0]
    tokens = first.steps[0].tokens
    group = mttp.read(session).groups[0]
    assert tokens is not None
    assert ([-0.5, -0.5], [-0.75, -0.75]) == (tokens.trainer_logprobs.tolist(), tokens.ref_logprobs.tolist())
    assert 1.75 == first.reward.value
    assert 1.0 - 0.1 * 2 * 0.25 == pytest.approx(first.steps[0].trained_reward)
    assert first.steps[0].trained_reward == group.rewards[0]
    assert ("leave_one_out", "none", 0.1) == (group.normalization, group.scope, group.metadata["beta"])


def test_the_evaluation_is_reported_from_the_training(session: mttp.Session) -> None:
    """
    Its episodes have the split eval, and no update.
    """
    teacher = trainer()
    mttp.instrument(teacher)

    teacher.train(1)
    teacher.evaluate()

    evaluated = [episode for episode in mttp.read(session) if episode.split == "eval"]
    assert (4, {()}, {"1"}) == (
        len(evaluated),
        {episode.consumed_by for episode in evaluated},
        {episode.policy_version_start for episode in evaluated},
    )


def test_an_async_function_finds_the_trainers_context(session: mttp.Session) -> None:
    """
    It runs on another thread in the trainer's OpenTelemetry context.
    """
    key, seen = otel_context.create_key("test"), []

    async def judged(completions: list[str], **_: Any) -> list[float]:
        await asyncio.sleep(0)
        seen.append(otel_context.get_value(key))
        return [0.5] * len(completions)

    class Judge:
        async def __call__(self, completions: list[str], **_: Any) -> list[float]:
            seen.append(otel_context.get_value(key))
            return [0.25] * len(completions)

    teacher = trainer(judged, Judge())
    mttp.instrument(teacher)

    token = otel_context.attach(otel_context.set_value(key, "mine"))
    teacher.train(1)
    otel_context.detach(token)

    assert ["mine", "mine"] == seen
    assert {"judged": 0.5, "Judge": 0.25} == by_row(session)[0].reward.components


def test_functions_stay_what_they_are(session: mttp.Session) -> None:
    """
    Name, signature and being async stay, because TRL inspects them.
    """

    async def judged(**_: Any) -> list[float]:
        return []

    class Judge:
        async def __call__(self, **_: Any) -> list[float]:
            return []

    some = [correct, judged, Judge(), functools.partial(correct)]
    teacher = GRPOTrainer(some, SCRIPT, ROWS)
    handle = mttp.instrument(teacher)

    found = teacher.reward_funcs
    assert all(now is not before for now, before in zip(found, some, strict=True))
    assert "correct" == found[0].__name__
    assert inspect.signature(correct) == inspect.signature(found[0])
    assert [inspect.iscoroutinefunction(one) for one in some] == [
        inspect.iscoroutinefunction(one) for one in found
    ]
    assert [False, False, True, False] == [inspect.iscoroutinefunction(one.__call__) for one in found]
    assert isinstance(found[3], functools.partial)

    assert [correct, judged] == some[:2]  # nor is the user's list changed

    handle.detach()
    assert all(now is before for now, before in zip(teacher.reward_funcs, some, strict=True))


def test_functions_that_come_later_are_recorded_too(session: mttp.Session) -> None:
    """
    The trainer's list may change after instrumenting.
    """
    teacher = trainer(correct)
    mttp.instrument(teacher)
    teacher.reward_funcs[0] = lambda completions, **_: (None for _ in completions)

    teacher.train(1)

    assert {"correct": "abstained"} == by_row(session)[0].reward.component_statuses


def test_an_error_of_a_function_passes_through(session: mttp.Session) -> None:
    """
    The exception propagates, and its completions are recorded with it.
    """
    error = ZeroDivisionError("no completions")

    def broken(**_: Any) -> list[float]:
        raise error

    teacher = trainer(short, broken)
    mttp.instrument(teacher)

    with pytest.raises(ZeroDivisionError) as raised:
        teacher.train(1)

    first = by_row(session)[0]
    assert error is raised.value
    assert ("error", "ZeroDivisionError", "no completions") == (
        first.status,
        first.error_type,
        first.error_message,
    )
    assert ("error", {"short": 0.75}, {"broken": "error"}) == (
        first.reward.status,
        first.reward.components,
        first.reward.component_statuses,
    )
    assert ([52, 1], None) == (first.steps[0].tokens.ids.tolist(), first.steps[0].tokens.prompt_ids)  # type: ignore[union-attr]
    assert [] == mttp.read(session).groups


def test_an_interruption_is_no_error(session: mttp.Session) -> None:
    """
    Completions that are unscored after Ctrl-C are aborted, and no function has an error.
    """

    def interrupted(**_: Any) -> list[float]:
        raise KeyboardInterrupt

    teacher = trainer(short, interrupted)
    mttp.instrument(teacher)

    with pytest.raises(KeyboardInterrupt):
        teacher.train(1)

    first = by_row(session)[0]
    assert ("aborted", "KeyboardInterrupt", None) == (first.status, first.stop_reason, first.error_type)
    assert ("missing", {"short": 0.75}) == (first.reward.status, first.reward.components)
    assert {"interrupted": "missing"} == first.reward.component_statuses


def test_a_result_that_is_not_a_list_is_the_trainer_s_error(session: mttp.Session) -> None:
    """
    It is not a fault of the recording.
    """
    teacher = trainer(lambda **_: 1.0)
    mttp.instrument(teacher)

    with pytest.raises(TypeError, match="'float' object is not iterable"):
        teacher.train(1)

    assert {} == dict(session.stats.faults)


def test_a_trainer_that_learns_from_copies_is_kept_apart(session: mttp.Session) -> None:
    """
    A subclass may pass on copies of TRL's batches, new ones in each iteration.
    """

    class Copying(GRPOTrainer):
        def _prepare_inputs(self, inputs: Any) -> Any:
            return dict(super()._prepare_inputs(inputs))

    teacher = trainer(kind=Copying, steps_per_generation=2)
    mttp.instrument(teacher)

    teacher.train(4)

    assert [2, 2, 2, 2] == [update.consumed for update in mttp.read(session).updates]


def test_a_tool_refuses_in_its_own_words() -> None:
    """
    Python's message for an impossible call is a result that the model reads.
    """

    def add(first: int, second: int) -> int:
        return first + second

    observed = recorder._observed(add, "add", [])

    for arguments in ([1, 2], {"first": 1}):
        said = []
        for tool in (add, observed):
            with pytest.raises(TypeError) as refused:
                tool(**arguments)  # type: ignore[arg-type]  # as a model may call it
            said.append(str(refused.value))
        assert said[0] == said[1]


def test_a_tool_s_result_is_copied() -> None:
    """
    An environment may return its own board and change it later.
    """
    board: list[int] = []

    def play(place: int) -> list[int]:
        board.append(place)
        return board

    async def play_async(place: int) -> list[int]:
        return play(place)

    uses: list[Any] = []
    first, second = (recorder._observed(tool, "play", uses) for tool in (play, play_async))

    assert board is first(place=1)
    assert board is asyncio.run(second(place=2))
    assert [[1], [1, 2]] == [use.result for use in uses]
    first(place=3)
    assert [[1], [1, 2], [1, 2, 3]] == [use.result for use in uses]


def test_a_second_training_continues_the_count(session: mttp.Session) -> None:
    """
    The trainer restarts its count of updates, the recorded versions continue.
    """
    teacher = trainer()
    mttp.instrument(teacher)

    teacher.train(2)
    teacher.evaluate()
    teacher.train(1)

    recording = mttp.read(session)
    assert [0, 1, 2] == [update.index for update in recording.updates]
    versions = [episode.policy_version_start for episode in by_row(session)[:: len(ROWS)]]
    assert ["0", "1", "2", "2"] == versions
    assert [] == recording.problems


def weight(instrumented: bool) -> float:
    """Return the weight after three updates."""
    teacher = trainer()
    if instrumented:
        mttp.instrument(teacher)
    teacher.train(3)
    return teacher.weight


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (recorder.TrainerRecorder, "_start_batch"),
        (recorder.TrainerRecorder, "_take_completions"),
        (recorder.TrainerRecorder, "_take_rewards"),
        (recorder, "_values"),
        (completions.Completions, "episodes"),
    ],
)
def test_a_hook_that_raises_costs_only_the_recording(
    session: mttp.Session,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    name: str,
) -> None:
    """
    The weight is the same; the fault is counted each time, and logged once.
    """

    def raising(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    expected = weight(False)
    monkeypatch.setattr(where, name, raising)

    with caplog.at_level(logging.WARNING, "mttp"):
        found = weight(True)

    assert expected == found
    assert 3 <= session.stats.faults["integration_error"]
    assert 1 == len([record for record in caplog.records if "a bug" in record.getMessage()])


def test_the_training_is_the_same(session: mttp.Session) -> None:
    """
    With and without recording.
    """
    assert weight(False) == weight(True)
    assert {} == dict(session.stats.faults)


def test_detaching_leaves_nothing(session: mttp.Session) -> None:
    """
    The trainer is as before and not recorded; a second trainer still is.
    """
    one, other = trainer(), trainer()
    before = dict(vars(one))
    handle = mttp.instrument(one)
    mttp.instrument(other)

    handle.detach()
    handle.detach()
    one.train(1)
    other.train(1)

    assert {name: before[name] for name in before if callable(before[name])} == {
        name: value for name, value in vars(one).items() if callable(value)
    }
    assert (4, set()) == (len(by_row(session)), {name for name, held in handle.status().items() if held})


def test_detaching_forgets_no_update(session: mttp.Session) -> None:
    """
    Also not the last one, before the trainer has logged it.
    """
    teacher = trainer()
    handle = mttp.instrument(teacher)

    class Stopping:
        def on_step_end(self, *_: Any, **__: Any) -> None:
            handle.detach()

    teacher.add_callback(Stopping())
    teacher.train(2)

    assert [0] == [update.index for update in mttp.read(session).updates]


def test_instrumenting_again_gives_the_same_handle(session: mttp.Session) -> None:
    """
    The latest options apply, and nothing is recorded twice.
    """
    teacher = trainer()
    first = mttp.instrument(teacher, policy="one")
    second = mttp.instrument(teacher, policy="two", task="adding", metadata={"arm": "b"})

    teacher.train(1)

    found = by_row(session)
    assert first is second
    assert (4, {"two"}, {"adding"}, {"b"}) == (
        len(found),
        {episode.policy for episode in found},
        {episode.task for episode in found},
        {episode.metadata["arm"] for episode in found},
    )
    assert {"two"} == {update.policy for update in mttp.read(session).updates}


def test_texts_can_be_left_out(session: mttp.Session) -> None:
    """
    With their token ids; the number of tokens stays.
    """
    teacher = trainer()
    mttp.instrument(teacher, observations=False, actions=False)

    teacher.train(1)

    step = by_row(session)[0].steps[0]
    assert step.tokens is not None
    assert (None, None, None, None) == (
        step.observation,
        step.action,
        step.tokens.ids,
        step.tokens.prompt_ids,
    )
    assert (2, 4) == (step.tokens.count, step.tokens.prompt_count)


def test_a_method_of_another_name_is_warned_of(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Without `_calculate_rewards` the functions' results are summed, and one warning names the method.
    """

    class Renamed(GRPOTrainer):
        _calculate_rewards = None  # type: ignore[assignment]

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            self._calculate_rewards = functools.partial(Trainer._calculate_rewards, self)  # type: ignore[method-assign]
            return super()._generate_and_score_completions(inputs)

    patching._warn.cache_clear()
    teacher = Renamed([correct, short], SCRIPT, ROWS)
    with caplog.at_level(logging.WARNING, "mttp"):
        handle = mttp.instrument(teacher)
    teacher.train(1)

    first = by_row(session)[0]
    assert ({"correct": 1.0, "short": 0.75}, 1.75, {"answer": "4"}) == (
        first.reward.components,
        first.reward.value,
        first.inputs,
    )
    assert (False, True) == (handle.status()["_calculate_rewards"], handle.status()["reward_funcs"])
    assert "has no _calculate_rewards" in caplog.text
    assert "tested: 1.12 and 1.16" in caplog.text


def test_without_the_batch_there_are_rewards_still(session: mttp.Session) -> None:
    """
    Without `_generate_and_score_completions` episodes have rewards, but no advantages.
    """

    class Renamed(GRPOTrainer):
        _generate_and_score_completions = None  # type: ignore[assignment]

        def _prepare_inputs(self, inputs: Any) -> Any:
            return GRPOTrainer._generate_and_score_completions(self, inputs)

    patching._warn.cache_clear()
    teacher = Renamed([correct], SCRIPT, ROWS)
    mttp.instrument(teacher)

    teacher.train(1)

    first = by_row(session)[0]
    assert (1.0, None, [52, 1]) == (first.reward.value, first.advantage, first.steps[0].tokens.ids.tolist())  # type: ignore[union-attr]
    assert [(), ()] == [group.advantages for group in mttp.read(session).groups]
    assert 1 == len(mttp.read(session).updates)


def test_moved_trainers_are_warned_of(
    session: mttp.Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the trainers' modules do not exist, a warning names the trainers.
    """
    monkeypatch.setattr(library.trainers, "FAMILIES", {"GRPOTrainer": "gone", "RLOOTrainer": "gone"})
    patching._warn.cache_clear()
    with caplog.at_level(logging.WARNING, "mttp"):
        handle = library.TrlLibrary({})
        handle.patch_library()

    assert {"GRPOTrainer": False, "RLOOTrainer": False} == handle.status()
    assert "has no GRPOTrainer" in caplog.text


LAZY = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
sys.path.insert(0, sys.argv[1])
import mttp
handle = mttp.instrument()
def held():
    return [handle.status()[name] for name in ("GRPOTrainer", "RLOOTrainer")]
from trl.trainer.grpo_trainer import GRPOTrainer
print(*held())
from trl.trainer.rloo_trainer import RLOOTrainer
print(*held())
"""


def test_a_trainer_that_is_not_imported_yet_is_not_missing(tmp_path: Path) -> None:
    """
    There is no warning, and it is recorded after its import.
    """
    home = tmp_path / "trl" / "trainer"
    home.mkdir(parents=True)
    (tmp_path / "trl" / "__init__.py").touch()
    for name in ("GRPO", "RLOO"):
        code = f"class {name}Trainer:\n    def __init__(self): pass\n"
        (home / f"{name.lower()}_trainer.py").write_text(code)

    done = subprocess.run(
        [sys.executable, "-c", LAZY, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert ["True False", "True True"] == done.stdout.splitlines()


def test_suppressed_instrumentation_is_suppressed(session: mttp.Session) -> None:
    """
    Nothing is recorded while OpenTelemetry's instrumentations are suppressed.
    """
    teacher = trainer()
    mttp.instrument(teacher)

    token = otel_context.attach(otel_context.set_value("suppress_instrumentation", True))
    teacher.train(1)
    otel_context.detach(token)

    assert ([], []) == (mttp.read(session).episodes, mttp.read(session).updates)


def test_other_trainers_are_refused(session: mttp.Session) -> None:
    """
    The message names the supported ones.
    """
    with pytest.raises(
        InstrumentError, match=r"trl\.fake\.Trainer can't be recorded; .* GRPOTrainer, RLOOTrainer"
    ):
        mttp.instrument(Trainer([], [], []))


def test_the_run_s_facts(session: mttp.Session) -> None:
    """
    Algorithm, configuration, seed, and the model's size.
    """
    teacher = trainer()
    mttp.instrument(teacher)

    teacher.train(1)
    session.close()

    (run,) = mttp.read(session).runs
    assert ("grpo", "trl", 11, 1) == (run.algorithm, run.trainer, run.seed, run.policy_parameters)
    assert {"learning_rate": 0.5} == run.config
    assert "SimpleNamespace" == run.optimizer


def test_several_processes_record_each_episode_once(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each records its own completions; a group over both is recorded by one, with all members.
    """
    monkeypatch.setattr("mttp.integrations.trl.launch._shared_value", lambda _: "0123456789abcdef")
    for process in (0, 1):
        teacher = trainer(generations=8, process=process, processes=2)
        mttp.instrument(teacher)
        teacher.train(1)

    recording = mttp.read(session)
    (group,) = recording.groups
    (update,) = recording.updates
    assert (8, 8, []) == (len(recording.episodes), len(set(group.episodes)), recording.problems)
    assert {episode.trace_id for episode in recording} == set(group.episodes)
    assert not any(map(math.isnan, group.advantages))
    assert ((group.id,), 8) == (update.groups, update.consumed)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("kind", [GRPOTrainer, RLOOTrainer])
def test_a_trainer_s_class_that_is_patched_is_called(
    session: mttp.Session, kind: type[Trainer], is_first: bool
) -> None:
    """
    Each patched method is looked up at each call.
    """
    teacher = trainer(kind=kind)
    if is_first:
        mttp.instrument(teacher)
    with patch.object(Trainer, "training_step", autospec=True, side_effect=Trainer.training_step) as patched:
        handle = mttp.instrument(teacher)
        teacher.train(2)
        assert 2 == patched.call_count
    teacher.train(1)
    handle.detach()

    assert "training_step" not in vars(teacher)
    assert [0, 1, 2] == [update.index for update in mttp.read(session).updates]


def test_a_patch_restored_after_detaching_records_nothing(session: mttp.Session) -> None:
    """
    Another patch of the trainer may restore ours; the trainer can be instrumented again.
    """
    teacher = trainer()
    handle = mttp.instrument(teacher)
    with patch.object(teacher, "_generate_and_score_completions"):
        handle.detach()
    teacher.train(1)
    assert [] == by_row(session)

    assert mttp.instrument(teacher) is not handle
    teacher.train(1)
    assert 4 == len(by_row(session))


def test_model_calls_of_a_reward_function_are_not_steps(session: mttp.Session) -> None:
    """
    Not even inside an episode around the training, or in an async function.
    """
    openai = pytest.importorskip("openai")
    nobody: Any = {"base_url": "http://127.0.0.1:9", "api_key": "none", "max_retries": 0}
    blocking, awaiting = openai.OpenAI(**nobody), openai.AsyncOpenAI(**nobody)
    asked = {"model": "critic", "messages": [{"role": "user", "content": "?"}]}

    def rated(completions: list[str], **_: Any) -> list[float]:
        with pytest.raises(openai.APIConnectionError):
            blocking.chat.completions.create(**asked)
        return [1.0] * len(completions)

    async def rated_later(completions: list[str], **_: Any) -> list[float]:
        with pytest.raises(openai.APIConnectionError):
            await awaiting.chat.completions.create(**asked)
        return [1.0] * len(completions)

    teacher = trainer(rated, rated_later)
    for each in (blocking, awaiting, teacher):
        mttp.instrument(each)
    with mttp.episode(env="around"):
        teacher.train(1)

    (around,) = [episode for episode in mttp.read(session) if episode.env == "around"]
    assert 0 == len(around.steps)


# Rewards that fail, or lack something.


def concise(completions: list[str], **_: Any) -> list[float]:
    """Return a reward for small numbers; raises for a completion without digits."""
    found = []
    for completion in completions:
        digits = "".join(character for character in completion if character.isdigit())
        found.append(float(int(digits) < 10))
    return found


async def concise_later(completions: list[str], **_: Any) -> list[float]:
    """Return the same, awaited."""
    return concise(completions)


@pytest.mark.parametrize("function", [concise, concise_later])
def test_a_function_that_raises_is_an_error_with_class_message_and_completion(
    tmp_path: Path, function: Any
) -> None:
    """
    In the grades, the summary and its JSON; the completion that made it raise is named.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}"):
        teacher = trainer(correct, function)
        mttp.instrument(teacher)
        if function is concise:
            with pytest.raises(ValueError, match="invalid literal"):
                teacher.train(1)
        else:
            threads = patch("threading.excepthook", lambda *_: None)
            with threads, pytest.raises(ValueError, match=r"shape|inhomogeneous|reshape"):
                teacher.train(1)

    episodes = sorted(mttp.read(path), key=lambda episode: episode.index or 0)
    name = function.__name__
    message = "ValueError: invalid literal for int() with base 10: ''"
    assert {("error", "ValueError", f"{name}: {message}")} == {
        (one.reward.status, one.reward.error_type, one.reward.error) for one in episodes
    }
    grades = [grade for one in episodes for grade in one.reward.grades]
    assert [(name, "error", message)] * 4 == [(one.name, one.status, one.error) for one in grades]
    whose = ["another one", "this one", "another one", "another one"]
    assert [f"raised for row 1 of a batch of 4, {one}" for one in whose] == [
        one.explanation for one in grades
    ]
    assert [{"correct": 1.0}, {"correct": 0.0}] == [one.reward.components for one in episodes[:2]]
    failing = {one.component: one.failures for one in mttp.summarize(path).graders}[name]
    assert [(4, (episodes[1].trace_id,))] == [(one.count, one.raised_by) for one in failing]


def test_the_summary_says_what_a_function_raised(tmp_path: Path) -> None:
    """
    Once, with count, first completion and the one that made it raise.
    """
    from typer.testing import CliRunner

    from mttp.cli.app import app

    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}"):
        teacher = trainer(correct, concise)
        mttp.instrument(teacher)
        with pytest.raises(ValueError, match="invalid literal"):
            teacher.train(1)

    first, second = min(one.trace_id for one in mttp.read(path)), by_index(path)[1].trace_id
    said = (
        "raised ValueError: invalid literal for int() with base 10: '' "
        f"(4 completions, first {first[:8]}), raised by {second[:8]}"
    )
    output = CliRunner().invoke(app, ["summary", str(path)], env={"COLUMNS": "400"}).output
    assert (1, "failed gradings  8 (error 8)") == (
        output.count(said),
        next(line for line in output.splitlines() if line.startswith("failed")),
    )
    shown = CliRunner().invoke(app, ["show", str(path), "--episode", second[:8]]).output
    assert "raised for row 1 of a batch of 4, this one" in shown


def by_index(path: Path) -> list[mttp.Episode]:
    """Return the episodes of a file in the trainer's order."""
    return sorted(mttp.read(path), key=lambda episode: episode.index or 0)


@pytest.mark.parametrize(("weight", "status"), [(0.5, "partial"), (0.0, "ok")])
def test_a_reward_without_a_component_is_partial(session: mttp.Session, weight: float, status: str) -> None:
    """
    Unless the component has no weight.
    """

    def small(completions: list[str], **_: Any) -> list[float | None]:
        return [1.0 if completion.isdigit() else None for completion in completions]

    teacher = trainer(correct, small, weights=[1.0, weight])
    mttp.instrument(teacher)

    teacher.train(1)

    assert ["ok", status, "ok", status] == [episode.reward.status for episode in by_row(session)]


def test_what_partial_rewards_move_is_in_the_summary(tmp_path: Path) -> None:
    """
    Their number, their rewards and their advantages beside those of the others.
    """
    from typer.testing import CliRunner

    from mttp.cli.app import app

    def small(completions: list[str], **_: Any) -> list[float | None]:
        return [1.0 if completion.isdigit() else None for completion in completions]

    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}"):
        teacher = trainer(correct, small)
        mttp.instrument(teacher)
        teacher.train(2)

    found = mttp.summarize(path).partial_rewards
    assert found == mttp.read(path).summary().partial_rewards
    assert found is not None
    assert (4, 8, 0.0, 2.0) == (found.count, found.of, found.mean, found.mean_of_others)
    assert (-0.707, 0.707) == pytest.approx((found.advantage, found.advantage_of_others), abs=1e-3)
    output = CliRunner().invoke(app, ["summary", str(path)], env={"COLUMNS": "200"}).output
    assert (
        "4 of 8 (50.0%): mean reward 0, of the others 2; mean advantage -0.7071, of the others 0.7071"
        in output
    )


@pytest.mark.parametrize("others", [[], [short]])
def test_a_run_is_scored_again_by_its_own_spec(session: mttp.Session, others: list[Any]) -> None:
    """
    No reward changes, nor where the spec is one of several functions.
    """

    def size(prompt: str, completion: str, answer: str) -> float:
        return len(prompt) / 7 + len(completion) / 3 + len(answer)

    def ids(completion_ids: list[int]) -> float:
        return sum(completion_ids) / 1000

    inputs = {"prompt": "string", "completion": "string", "answer": "string", "completion_ids": "array"}
    sizes = mttp.RewardSpec(
        name="sizes",
        version="1.0.0",
        inputs=inputs,
        combine="weighted_sum",
        components=[
            {"name": "size", "kind": "rubric", "use": size, "weight": 0.1, "version": "1"},
            {"name": "ids", "kind": "rubric", "use": ids, "version": "1"},
        ],
    )
    teacher = trainer(sizes.for_trl(), *others)
    mttp.instrument(teacher)

    teacher.train(2)

    again = mttp.rescore(mttp.read(session), spec=sizes)
    assert (8, [], {}) == (len(again.changes), [one for one in again.changes if one.changed], again.invalid)
    assert 4 == len({one.old for one in again.changes} - {None})
