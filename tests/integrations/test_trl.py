"""TRL itself, training a tiny model: the recording equals TRL's numbers, and the training is unchanged."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from datasets import Dataset  # noqa: E402 - it comes with TRL
from integrations import tiny  # noqa: E402 - needs torch
from integrations.specimen import COMPLETIONS, completed, pay  # noqa: E402
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # noqa: E402

import mttp  # noqa: E402
from mttp.integrations import instrumentation  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and transformers deprecate each other's arguments

KINDS = {"grpo": (GRPOConfig, GRPOTrainer), "rloo": (RLOOConfig, RLOOTrainer)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a tiny model's directory."""
    return tiny.make(tmp_path_factory.mktemp("model"))


def length(completions: list[Any], **_: Any) -> list[float]:
    """Return a small reward per character."""
    return [len(str(completion)) / 10 for completion in completions]


def digits(completions: list[Any], log_extra: Any, log_metric: Any, **_: Any) -> list[float | None]:
    """Return the number of digits of each third completion, and None or NaN for the others."""
    log_extra("initial", [str(completion)[:1] for completion in completions])
    log_metric("asked", len(completions))
    found = [sum(character.isdigit() for character in str(completion)) for completion in completions]
    return [[None, math.nan, float(count)][place % 3] for place, count in enumerate(found)]


def rows(count: int = 8) -> Any:
    """Return sums with their answers."""
    sums = [{"prompt": f"{number}+{number}=", "answer": str(2 * number)} for number in range(count)]
    return Dataset.from_list(sums)


def spied(kind: type[Any]) -> type[Any]:
    """Return a trainer class that remembers what it computed: a subclass, as users have them."""

    class Spied(kind):  # type: ignore[misc]  # found at run time
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.batches: list[dict[str, Any]] = []
            super().__init__(*args, **kwargs)

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
            found = super()._calculate_rewards(inputs, prompts, completions, ids)
            self.batches.append({"rewards": found.clone(), "ids": ids, "texts": completions})
            return found

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)
            self.batches[-1] |= {name: value.clone() for name, value in found.items()}
            return found

    return Spied


def trainer(
    model: str,
    algorithm: str = "grpo",
    *,
    kind: Callable[[type[Any]], type[Any]] = spied,
    functions: Any = None,
    data: Any = None,
    given: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return a trainer of a tiny model, with two groups of four per batch."""
    config, base = KINDS[algorithm]
    settings: dict[str, Any] = {
        "output_dir": "out",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "beta": 0.1,
        "report_to": [],
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        "reward_weights": [1.0, 0.3] if functions is None else None,
    }
    return kind(base)(
        model=model,
        reward_funcs=[length, digits] if functions is None else functions,
        args=config(**settings | options),
        train_dataset=rows() if data is None else data,
        **{"processing_class": tiny.tokenizer(), **(given or {})},
    )


def by_row(source: Any) -> list[mttp.Episode]:
    """Return the episodes in the trainer's order."""
    return sorted(mttp.read(source), key=lambda episode: episode.index or 0)


def tokens_of(episode: mttp.Episode) -> mttp.Tokens:
    """Return the tokens of an episode of one step."""
    (step,) = episode.steps
    assert step.tokens is not None
    return step.tokens


# What is recorded is what TRL computed.


@pytest.mark.parametrize("algorithm", KINDS)
def test_values_are_those_of_trls_tensors(session: mttp.Session, model: str, algorithm: str) -> None:
    """
    Token ids, masks, log probabilities, rewards and advantages are equal.
    """
    teacher = trainer(model, algorithm)
    mttp.instrument(teacher)

    teacher.train()

    episodes = by_row(session)
    assert 16 == len(episodes)
    for place, episode in enumerate(episodes):
        batch, row = teacher.batches[place // 8], place % 8
        tokens, count = tokens_of(episode), len(batch["ids"][row])
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        assert batch["ids"][row] == tokens.ids.tolist()
        assert prompt.tolist() == tokens.prompt_ids.tolist()
        assert batch["completion_mask"][row, :count].tolist() == tokens.masks.tolist()
        assert batch["advantages"][row].item() == episode.advantage
        paid = dict(zip(("length", "digits"), batch["rewards"][row].tolist(), strict=True))
        assert {name: value for name, value in paid.items() if not math.isnan(value)} == dict(
            episode.reward.components
        )
        assert (batch["texts"][row], str(place // 8)) == (
            episode.steps[0].action,
            episode.policy_version_start,
        )
        if algorithm == "grpo":
            assert batch["ref_per_token_logps"][row, :count].tolist() == tokens.ref_logprobs.tolist()
        else:
            total = (tokens.trainer_logprobs * tokens.masks).sum()
            assert batch["old_logps"][row].item() == pytest.approx(total)


def test_none_nan_and_numbers_are_kept_apart(session: mttp.Session, model: str) -> None:
    """
    TRL's tensors do not distinguish None and NaN, the recorded statuses do.
    """
    teacher = trainer(model)
    mttp.instrument(teacher)

    teacher.train()

    statuses = [episode.reward.component_statuses.get("digits", "ok") for episode in by_row(session)[:6]]
    assert ["abstained", "error", "ok"] * 2 == statuses


def test_the_combined_reward_is_what_trl_logs(session: mttp.Session, model: str) -> None:
    """
    The mean reward before normalization is TRL's.
    """
    teacher = trainer(model)
    mttp.instrument(teacher)

    teacher.train()

    logged = [line["reward"] for line in teacher.state.log_history if "reward" in line]
    paid = np.array([episode.reward.value for episode in by_row(session)]).reshape(2, 8)
    weights = by_row(session)[0].reward.weights
    assert logged == pytest.approx(paid.mean(axis=1).tolist(), rel=1e-6)
    assert {"length": 1.0, "digits": float(np.float32(0.3))} == weights


def test_the_recording_is_trls_file_of_completions(session: mttp.Session, model: str) -> None:
    """
    Prompts, completions, rewards, logged columns and advantages are equal, line by line.
    """
    pandas = pytest.importorskip("pandas")
    teacher = trainer(model, log_completions=True)
    mttp.instrument(teacher)

    teacher.train()

    files = [pandas.read_parquet(path) for path in sorted(Path("out/completions").glob("*.parquet"))]
    lines = pandas.concat(files, ignore_index=True).to_dict("records")
    assert 16 == len(lines)
    for line, episode in zip(lines, by_row(session), strict=True):
        step = episode.steps[0]
        assert (line["prompt"], line["completion"]) == (step.observation, step.action)
        assert line["length"] == episode.reward.components["length"]
        assert line["digits"] == episode.reward.components.get("digits") or math.isnan(line["digits"])
        assert (line["advantage"], line["initial"]) == (episode.advantage, episode.metadata["initial"])


@pytest.mark.parametrize("algorithm", KINDS)
def test_updates_are_trls_log_lines(session: mttp.Session, model: str, algorithm: str) -> None:
    """
    Loss, KL, entropy, clip fraction, gradient norm, learning rate, and every other number under TRL's name.
    """
    teacher = trainer(model, algorithm, num_iterations=2, max_steps=4)
    mttp.instrument(teacher)

    teacher.train()

    lines = [line for line in teacher.state.log_history if "loss" in line]
    updates = mttp.read(session).updates
    assert [0, 1, 2, 3] == [update.index for update in updates]
    for line, update in zip(lines, updates, strict=True):
        assert line["loss"] == pytest.approx(update.loss, rel=1e-6, abs=1e-9)
        assert (line.get("kl"), line["entropy"]) == (update.kl, update.entropy)
        assert line["clip_ratio/region_mean"] == update.clip_fraction
        assert (line["grad_norm"], line["learning_rate"]) == (update.grad_norm, update.learning_rate)
        assert line["clip_ratio/high_max"] == update.metrics["clip_ratio_high_max"]
        assert line.get("asked") == update.metrics.get("asked")


def test_updates_between_two_log_lines(session: mttp.Session, model: str) -> None:
    """
    TRL logs the mean over its logging steps; each update has its own numbers all the same.
    """
    teacher = trainer(model, logging_steps=2)
    mttp.instrument(teacher)

    teacher.train()

    (line,) = [line for line in teacher.state.log_history if "loss" in line]
    first, second = mttp.read(session).updates
    assert first.entropy != second.entropy
    assert line["entropy"] == pytest.approx((first.entropy + second.entropy) / 2)  # type: ignore[operator]
    assert line["loss"] == pytest.approx((first.loss + second.loss) / 2, abs=1e-7)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("algorithm", "options", "expected"),
    [
        ("grpo", {}, ("mean_std", "group", {})),
        ("grpo", {"scale_rewards": "batch"}, ("mean_std", "batch", {})),
        ("grpo", {"scale_rewards": "none"}, ("mean", "none", {})),
        (
            "grpo",
            {"multi_objective_aggregation": "normalize_then_sum"},
            (None, "group", {"multi_objective_aggregation": "normalize_then_sum"}),
        ),
        ("rloo", {}, ("leave_one_out", "none", {"beta": 0.1})),
        (
            "rloo",
            {"normalize_advantages": True, "reward_clip_range": [0.0, 0.9], "beta": 0.0},
            ("leave_one_out", "batch", {"normalize_advantages": True, "reward_clip_range": [0.0, 0.9]}),
        ),
    ],
    ids=["group", "batch", "none", "normalize_then_sum", "rloo", "rloo-normalized"],
)
def test_groups_state_how_advantages_are_computed(
    session: mttp.Session, model: str, algorithm: str, options: dict[str, Any], expected: Any
) -> None:
    """
    Recomputed from a group's rewards, the advantages equal TRL's.
    """
    teacher = trainer(model, algorithm, **options)
    mttp.instrument(teacher)

    teacher.train()

    recording = mttp.read(session)
    stated = np.array([group.advantages for group in recording.groups]).reshape(-1)
    computed = torch.cat([batch["advantages"] for batch in teacher.batches]).tolist()
    assert (4, 4, []) == (
        len(recording.groups),
        len({group.id for group in recording.groups}),
        recording.problems,
    )
    assert computed == stated.tolist()
    for group in recording.groups:
        assert expected == (group.normalization, group.scope, group.metadata)
        assert (1, 4) == (group.ddof, group.size)
        if expected[0] is not None and "normalize_advantages" not in expected[2]:
            assert list(group.advantages) == pytest.approx(_by_formula(group), abs=1e-5)


def _by_formula(group: mttp.model.Group) -> list[float]:
    from mttp.model import baselines

    how = group.normalization
    return list(baselines.advantages(group.rewards, how, mean=group.reward_mean, std=group.reward_std))


def test_the_run_s_facts(model: str) -> None:
    """
    Trainer, version, algorithm, configuration, seed, network and optimizer.
    """
    with mttp.configure("memory://") as session:
        teacher = trainer(model, "rloo", seed=5)
        mttp.instrument(teacher)
        teacher.train()

    (run,) = mttp.read(session).runs
    assert ("trl", trl.__version__, "rloo", 5, "AdamW") == (
        run.trainer,
        run.trainer_version,
        run.algorithm,
        run.seed,
        run.optimizer,
    )
    assert run.policy_architecture is not None
    assert run.policy_architecture.startswith("Qwen2ForCausalLM(num_hidden_layers=2, hidden_size=16")
    assert teacher.get_num_trainable_parameters() == run.policy_parameters
    assert (0.1, 4) == (run.config["beta"], run.config["num_generations"])
    assert () == run.faults


# How TRL is used.


def test_completions_are_consumed_as_trl_slices_them(session: mttp.Session, model: str) -> None:
    """
    A batch for several updates, used twice: each completion has two updates, with growing lag.
    """
    teacher = trainer(model, steps_per_generation=4, num_iterations=2, max_steps=4)
    mttp.instrument(teacher)

    teacher.train()

    updates = mttp.read(session).updates
    consumed = sorted(episode.consumed_by for episode in by_row(session))
    assert 16 == len(consumed)
    assert [(0, 2)] * 8 + [(1, 3)] * 8 == consumed
    assert [0, 1, 2, 3] == [update.lag_max for update in updates]
    assert [8] * 4 == [update.consumed for update in updates]


def test_an_update_may_learn_from_several_batches(session: mttp.Session, model: str) -> None:
    """
    With more batches than updates, an update names the groups of all its batches.
    """
    teacher = trainer(model, steps_per_generation=1)
    mttp.instrument(teacher)

    teacher.train()

    recording = mttp.read(session)
    assert [(2, 8), (2, 8)] == [(len(update.groups), update.consumed) for update in recording.updates]
    assert {(0,), (1,)} == {episode.consumed_by for episode in recording}


def test_completions_that_the_loss_leaves_out_are_discarded(session: mttp.Session, model: str) -> None:
    """
    As truncated completions with `mask_truncated_completions`.
    """
    teacher = trainer(model, mask_truncated_completions=True)
    mttp.instrument(teacher)

    teacher.train()

    episodes = by_row(session)
    assert {("masked_truncated",) if episode.truncated else () for episode in episodes} == {
        episode.discarded_by for episode in episodes
    }
    assert all(bool(episode.truncated) != bool(tokens_of(episode).masks.any()) for episode in episodes)


def test_an_evaluation_is_recorded_as_one(session: mttp.Session, model: str) -> None:
    """
    Its episodes have the split eval and their own groups, and no update.
    """
    options = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    teacher = trainer(model, given={"eval_dataset": rows(2)}, **options)
    mttp.instrument(teacher)

    teacher.train()

    evaluated = [episode for episode in by_row(session) if episode.split == "eval"]
    assert (16, {()}) == (len(evaluated), {episode.consumed_by for episode in evaluated})
    assert [["1"] * 8, ["2"] * 8] == [
        [str(episode.policy_version_start) for episode in evaluated[place : place + 8]] for place in (0, 8)
    ]
    assert [] == mttp.read(session).problems


def test_async_functions_are_awaited_on_trls_thread(session: mttp.Session, model: str) -> None:
    """
    TRL still sees that they are async, and their results are recorded.
    """

    async def judged(completions: list[str], **_: Any) -> list[float]:
        await asyncio.sleep(0)
        return [0.5] * len(completions)

    teacher = trainer(model, functions=[judged, length])
    mttp.instrument(teacher)

    teacher.train()

    assert [0.5] * 16 == [episode.reward.components["judged"] for episode in by_row(session)]
    assert [0.5] * 8 == teacher.batches[0]["rewards"][:, 0].tolist()


def test_an_async_object_is_awaited_too(session: mttp.Session, model: str) -> None:
    """
    In versions of TRL that support an async `__call__`.
    """

    class Judge:
        async def __call__(self, completions: list[str], **_: Any) -> list[float]:
            return [0.5] * len(completions)

    if trl.__version__.startswith("1.12."):
        pytest.skip("TRL 1.12 takes such an object for a plain function")
    teacher = trainer(model, functions=[Judge()])
    mttp.instrument(teacher)

    teacher.train()

    assert [0.5] * 16 == [episode.reward.components["Judge"] for episode in by_row(session)]


def test_a_reward_model_is_left_as_it_is(session: mttp.Session, model: str) -> None:
    """
    It is not patched, and its scores are components of the reward.
    """
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    config = Qwen2Config.from_pretrained(model, num_labels=1)
    judge = Qwen2ForSequenceClassification(config)
    judge.config._name_or_path = "some/judge"
    given = {"reward_processing_classes": [tiny.tokenizer(), None]}
    teacher = trainer(model, functions=[judge, length], given=given)
    handle = mttp.instrument(teacher)

    assert isinstance(teacher.reward_funcs[0], torch.nn.Module)
    teacher.train()

    assert handle.status()["reward_funcs"]
    assert teacher.batches[0]["rewards"][:, 0].tolist() == [
        episode.reward.components["judge"] for episode in by_row(session)[:8]
    ]


def test_an_error_of_a_function_is_the_callers(session: mttp.Session, model: str) -> None:
    """
    It propagates, and its completions are recorded with it.
    """
    error = ZeroDivisionError("nothing to divide")

    def broken(**_: Any) -> list[float]:
        raise error

    teacher = trainer(model, functions=[length, broken])
    mttp.instrument(teacher)

    with pytest.raises(ZeroDivisionError) as raised:
        teacher.train()

    episodes = by_row(session)
    assert (True, 8, {"error"}) == (
        raised.value is error,
        len(episodes),
        {episode.status for episode in episodes},
    )
    assert {"error"} == {episode.reward.status for episode in episodes}
    assert all(len(tokens_of(episode).ids) for episode in episodes)


def test_training_goes_on_from_a_checkpoint(model: str, tmp_path: Path) -> None:
    """
    Updates and versions continue, and group ids are new.
    """
    for steps, checkpoint in ((2, None), (4, "out/checkpoint-2")):
        with mttp.configure(f"file://{tmp_path}/{steps}.jsonl", run_id="one"):
            teacher = trainer(model, max_steps=steps, save_strategy="steps", save_steps=2)
            mttp.instrument(teacher)
            teacher.train(resume_from_checkpoint=checkpoint)

    recording = mttp.read([tmp_path / "2.jsonl", tmp_path / "4.jsonl"])
    assert [0, 1, 2, 3] == [update.index for update in recording.updates]
    assert ["0", "1", "2", "3"] == [str(version) for version in _versions(recording)]
    assert (8, 8, []) == (
        len(recording.groups),
        len({group.id for group in recording.groups}),
        recording.problems,
    )


def _versions(recording: mttp.Recording) -> list[Any]:
    """Return the policy versions of the episodes, in order."""
    return list(dict.fromkeys(episode.policy_version_start for episode in recording))


def scripted(kind: type[Any]) -> type[Any]:
    """Return a trainer whose model says what a test scripts, turn by turn."""

    class Scripted(spied(kind)):  # type: ignore[misc]  # found at run time
        says: Callable[[int, int], str]
        turn = 0

        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
            texts = [type(self).says(self.turn, row) for row in range(len(prompt_ids))]
            self.turn = self.turn + 1
            ids = [self.processing_class(text)["input_ids"] for text in texts]
            return [some[: self.args.max_completion_length] for some in ids], None

    return Scripted


CALL = '<tool_call>\n{{"name": "{0}", "arguments": {1}}}\n</tool_call><|im_end|>'


def multiply(a: int, b: int) -> int:
    """
    Multiply.

    Args:
        a: A factor.
        b: The other.
    """
    return a * b


async def look_up(word: str) -> str:
    """
    Look a word up.

    Args:
        word: The word.
    """
    await asyncio.sleep(0)
    raise KeyError(word)


def conversations() -> tuple[Any, Any]:
    """Return a tokenizer that can render tool calls, and prompts that are messages."""
    tokens = tiny.tokenizer()
    tokens.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    prompt = [{"role": "user", "content": "What is 6 times 7?"}]
    return tokens, Dataset.from_list([{"prompt": prompt}] * 8)


def test_turns_with_tools_are_steps(session: mttp.Session, model: str) -> None:
    """
    Each turn has its observation, message, own tokens, and calls with results.
    """
    tokens, data = conversations()

    def says(turn: int, row: int) -> str:
        if turn == 0 and row == 0:
            return CALL.format("multiply", '{"a": 6, "b": 7}')
        if turn == 0 and row == 1:
            return CALL.format("look_up", '{"word": "six"}')
        return "42<|im_end|>"

    teacher = trainer(
        model,
        kind=scripted,
        functions=[length],
        data=data,
        max_completion_length=400,
        max_steps=1,
        given={"tools": [multiply, look_up], "processing_class": tokens},
    )
    type(teacher).says = staticmethod(says)
    mttp.instrument(teacher)

    teacher.train()

    multiplied, looked_up, plain = by_row(session)[:3]
    first, second = multiplied.steps
    (call,), (failed,) = first.calls, looked_up.steps[0].calls
    assert [{"role": "user", "content": "What is 6 times 7?"}] == first.observation
    assert ("execute_tool", "multiply", {"a": 6, "b": 7}, 42) == (
        call.operation,
        call.name,
        call.arguments,
        call.result,
    )
    assert ("look_up", "KeyError", "'six'") == (failed.name, failed.error_type, failed.error_message)
    assert [{"role": "tool", "name": "multiply", "content": "42"}] == second.observation
    assert ("42", True, False) == (second.action["content"], second.terminated, first.terminated)
    assert call.start_time is not None
    assert call.end_time is not None
    assert multiplied.start_time <= call.start_time <= call.end_time <= multiplied.end_time  # type: ignore[operator]
    assert (1, ()) == (len(plain.steps), plain.steps[0].calls)
    _together(teacher.batches[0], 0, multiplied)


def test_a_wrong_call_has_python_s_message(session: mttp.Session, model: str) -> None:
    """
    The model reads Python's own error message, also while the trainer is recorded.
    """
    said = []
    for is_recorded in (False, True):
        tokens, data = conversations()
        teacher = trainer(
            model,
            kind=scripted,
            functions=[length],
            data=data,
            max_completion_length=400,
            max_steps=1,
            given={"tools": [multiply], "processing_class": tokens},
        )
        wrong = CALL.format("multiply", "[6, 7]")
        type(teacher).says = staticmethod(lambda turn, _, wrong=wrong: "42<|im_end|>" if turn else wrong)
        if is_recorded:
            mttp.instrument(teacher)
        teacher.train()
        said.append(teacher.batches[0]["texts"])

    assert said[0] == said[1]
    (call,) = by_row(session)[0].steps[0].calls
    assert ([6, 7], said[0][0][1]["content"]) == (call.arguments, call.result)


def _together(batch: dict[str, Any], row: int, episode: mttp.Episode) -> None:
    """Check that the steps' tokens, joined, are TRL's."""
    found: list[int] = []
    sampled: list[int] = []
    prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
    for index, step in enumerate(episode.steps):
        tokens = step.tokens
        assert tokens is not None
        assert ((index - 1, len(found)) if index else None) == tokens.parent
        found += [*tokens.prompt_ids, *tokens.ids]
        sampled += [0] * len(tokens.prompt_ids) + [1] * len(tokens.ids)
    assert [*prompt, *batch["ids"][row]] == found
    mask = batch["tool_mask"][row, : len(batch["ids"][row])].tolist()
    assert [0] * len(prompt) + mask == sampled


class Room:
    """An environment with a door."""

    def reset(self, **_: Any) -> str:
        """Shut the door."""
        self.is_open = False
        return " The door is shut."

    def push(self, hard: bool) -> str:
        """
        Push the door.

        Args:
            hard: With force.
        """
        self.is_open = hard
        return "It opens." if hard else "It stays shut."

    def get_reward(self) -> float:
        """1 for an open door."""
        return float(self.is_open)


def test_an_environment_answers_in_steps(session: mttp.Session, model: str) -> None:
    """
    The reset's text is in the prompt, its methods are tools, and its own reward is a component.
    """
    tokens, data = conversations()

    def says(turn: int, row: int) -> str:
        if turn == 0 and row < 4:
            return CALL.format("push", '{"hard": true}' if row % 2 else '{"hard": false}')
        return "done<|im_end|>"

    teacher = trainer(
        model,
        kind=scripted,
        functions=[length],
        data=data,
        max_completion_length=400,
        max_steps=1,
        given={"environment_factory": Room, "processing_class": tokens},
    )
    type(teacher).says = staticmethod(says)
    mttp.instrument(teacher)

    teacher.train()

    episodes = by_row(session)[:8]
    assert {"Room"} == {episode.env for episode in episodes}
    assert [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0] == [
        episode.reward.components["Room"] for episode in episodes
    ]
    assert [2, 2, 2, 2, 1, 1, 1, 1] == [len(episode.steps) for episode in episodes]
    assert episodes[1].steps[0].observation[-1]["content"].endswith("The door is shut.")
    assert "It opens." == episodes[1].steps[0].calls[0].result


def test_a_rollout_functions_own_turns_are_steps(session: mttp.Session, model: str) -> None:
    """
    It returns log probabilities and a mask; its other fields are inputs.
    """

    def rollout(prompts: list[str], teacher: Any) -> dict[str, Any]:
        encode = teacher.processing_class
        ask, answer, more = (encode(text)["input_ids"] for text in ("a", "bb", "c<|im_end|>"))
        ids = [*ask, *answer, *more]
        count = len(prompts)
        return {
            "prompt_ids": [encode(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [ids] * count,
            "logprobs": [[-0.5] * len(ids)] * count,
            "env_mask": [[1, 0, 0, 1, 1]] * count,
            "score": [7.0] * count,
        }

    teacher = trainer(model, functions=[length], max_steps=1, given={"rollout_func": rollout})
    mttp.instrument(teacher)

    teacher.train()

    first, second = by_row(session)[0].steps
    assert ("a", "bb", "c") == (first.action, second.observation, second.action)
    assert ([-0.5], [-0.5, -0.5]) == (first.tokens.logprobs.tolist(), second.tokens.logprobs.tolist())  # type: ignore[union-attr]
    assert {"answer", "score"} == set(by_row(session)[0].inputs)
    _together(teacher.batches[0], 0, by_row(session)[0])


def test_the_specimen(session: mttp.Session, model: str) -> None:
    """
    The shared completions read back, with log probabilities.
    """
    places = itertools.cycle(range(len(COMPLETIONS)))

    def rollout(prompts: list[str], teacher: Any) -> dict[str, Any]:
        encode = teacher.processing_class
        found = [COMPLETIONS[next(places)] for _ in prompts]
        texts = [each.text + ("<|im_end|>" if each.ended else "") for each in found]
        return {
            "prompt_ids": [encode(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [encode(text)["input_ids"] for text in texts],
            "logprobs": [list(each.logprobs) for each in found],
        }

    def specimen(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        return [*map(pay, prompts, completions)]

    teacher = trainer(
        model,
        functions=[specimen],
        data=Dataset.from_list([{"prompt": COMPLETIONS[0].prompt}] * 8),
        max_steps=1,
        given={"rollout_func": rollout},
    )
    mttp.instrument(teacher)

    teacher.train()

    def decode(ids: list[int]) -> str:
        return str(tiny.tokenizer().decode(ids, skip_special_tokens=True))

    expected = [
        replace(each, paid=None if each.paid is None else float(np.float32(each.paid)))
        for each in (*COMPLETIONS, *COMPLETIONS)
    ]
    assert expected == [completed(episode, decode) for episode in by_row(session)]


def test_messages_are_kept_as_messages(session: mttp.Session, model: str) -> None:
    """
    In a conversational dataset, prompt and completion are lists of messages.
    """
    prompt = [{"role": "user", "content": "Hi!"}]
    teacher = trainer(
        model, data=Dataset.from_list([{"prompt": prompt}] * 8), max_steps=1, functions=[length]
    )
    mttp.instrument(teacher)

    teacher.train()

    step = by_row(session)[0].steps[0]
    assert (prompt, "assistant") == (step.observation, step.action["role"])


# What is recorded is enough to score it again.


def scoring(**inputs: str) -> mttp.RewardSpec:
    """Return a spec with an input for each of TRL's arguments that it reads."""

    def size(**values: Any) -> float:
        return sum(len(str(values[name])) for name in inputs) / 7

    def odd(**values: Any) -> float | None:
        count = sum(len(str(value)) for value in values.values())
        return None if count % 5 == 0 else count % 2 / 3

    return mttp.RewardSpec(
        name="sizes",
        version="1.0.0",
        inputs=inputs,
        combine="weighted_sum",
        on_invalid="skip",
        components=[
            {"name": "size", "kind": "rubric", "use": size, "version": "1"},
            {"name": "odd", "kind": "rubric", "use": odd, "weight": 0.3, "version": "1"},
        ],
    )


ANY = {"prompt": "any", "completion": "any", "completion_ids": "array"}


@pytest.mark.parametrize("inputs", [ANY, {"prompt": "string", "completion": "string", "answer": "string"}])
@pytest.mark.parametrize("others", [[], [length]])
def test_a_run_is_scored_again_by_its_own_spec(
    session: mttp.Session, model: str, inputs: dict[str, str], others: list[Any]
) -> None:
    """
    No reward changes, also where the spec is one of several reward functions.
    """
    spec = scoring(**inputs)
    teacher = trainer(model, functions=[spec.for_trl(), *others])
    mttp.instrument(teacher)

    teacher.train()

    again = mttp.rescore(mttp.read(session), spec=spec)
    assert (16, 0, {}) == (len(again.changes), sum(one.changed for one in again.changes), again.invalid)
    assert 1 < len({one.new for one in again.changes})
    assert {name for one in again.changes for name in [one.old is None]} == {False}


@pytest.mark.parametrize("inputs", [ANY, {"completion": "string"}])
def test_a_run_with_tools_is_scored_again_by_its_own_spec(
    session: mttp.Session, model: str, inputs: dict[str, str]
) -> None:
    """
    The completion has the messages of the policy and of the tools.
    """
    tokens, data = conversations()
    call = CALL.format("multiply", '{"a": 6, "b": 7}')
    spec = scoring(**inputs)
    teacher = trainer(
        model,
        kind=scripted,
        functions=[spec.for_trl()],
        data=data,
        max_completion_length=400,
        max_steps=1,
        given={"tools": [multiply], "processing_class": tokens},
    )
    type(teacher).says = staticmethod(lambda turn, row: call if turn == 0 and row < 3 else f"{row}<|im_end|>")
    mttp.instrument(teacher)

    teacher.train()

    again = mttp.rescore(mttp.read(session), spec=spec)
    assert (8, 0, {}) == (len(again.changes), sum(one.changed for one in again.changes), again.invalid)


# The training is the same.


def weights(model: str, algorithm: str = "grpo", *, instrumented: bool, **options: Any) -> dict[str, Any]:
    """Return the trained weights."""
    teacher = trainer(model, algorithm, kind=lambda kind: kind, max_steps=3, **options)
    if instrumented:
        mttp.instrument(teacher)
    teacher.train()
    return {name: value.detach().clone() for name, value in teacher.model.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether all weights are equal, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("algorithm", KINDS)
@pytest.mark.parametrize("slices", [2, 4])
def test_the_weights_are_the_same(session: mttp.Session, model: str, algorithm: str, slices: int) -> None:
    """
    With and without recording.
    """
    plain = weights(model, algorithm, instrumented=False, steps_per_generation=slices)
    recorded = weights(model, algorithm, instrumented=True, steps_per_generation=slices)

    assert same(plain, recorded)
    assert not same(plain, {name: value + 1 for name, value in plain.items()})
    assert {} == dict(session.stats.faults)
    assert len(by_row(session)) in (24, 32)


def test_a_hook_that_raises_changes_nothing(
    session: mttp.Session, model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The weights are the same, one line is logged, and the fault is counted.
    """
    from mttp.integrations.trl.recorder import TrainerRecorder

    def raising(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug of ours")

    plain = weights(model, instrumented=False)
    monkeypatch.setattr(TrainerRecorder, "_take_completions", raising)
    with caplog.at_level(logging.WARNING, "mttp"):
        recorded = weights(model, instrumented=True)

    assert same(plain, recorded)
    assert {"integration_error"} == session.stats.faults.keys()
    assert 1 == len([record for record in caplog.records if "a bug of ours" in record.getMessage()])


def test_all_patches_hold(session: mttp.Session, model: str) -> None:
    """
    This version of TRL has all patched methods, and detaching restores them.
    """
    for algorithm in KINDS:
        teacher = trainer(model, algorithm, kind=lambda kind: kind)
        before = set(vars(teacher)), list(teacher.reward_funcs), list(teacher.callback_handler.callbacks)
        handle = mttp.instrument(teacher)
        assert all(handle.status().values())

        handle.detach()

        after = set(vars(teacher)), list(teacher.reward_funcs), list(teacher.callback_handler.callbacks)
        assert before == after
        assert not any(handle.status().values())


# Without a word in the training script.


@pytest.mark.parametrize("is_library", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_class_that_is_patched_is_called(
    session: mttp.Session, model: str, is_library: bool, is_first: bool
) -> None:
    """
    Before the trainer is instrumented or after.
    """
    base = KINDS["grpo"][1]
    if is_library:
        mttp.instrument()
    teacher = trainer(model, kind=lambda kind: kind)
    if is_first:
        mttp.instrument(teacher)
    with patch.object(base, "training_step", autospec=True, side_effect=base.training_step) as patched:
        handle = mttp.instrument(teacher)
        teacher.train()
        assert 4 == patched.call_count
    handle.detach()

    assert "training_step" not in vars(teacher)
    assert 16 == len(by_row(session))


def test_every_trainer_is_recorded(session: mttp.Session, model: str) -> None:
    """
    After `instrument()` without a target, new trainers are recorded, subclasses too, until it is detached.
    """
    with mttp.instrument(policy="mine"):
        teacher = trainer(model, max_steps=1)
        other = trainer(model, "rloo", max_steps=1)
        teacher.train()
        other.train()
        third = trainer(model, max_steps=1)
    third.train()

    assert 16 == len(by_row(session))
    assert {"mine"} == {episode.policy for episode in by_row(session)}


def test_instrumenting_imports_no_trainer() -> None:
    """
    The import takes seconds; trainers imported later are recorded.
    """
    code = """
import sys, trl, mttp
with mttp.configure("memory://"):
    handle = mttp.instrument()
    print("trl.trainer.grpo_trainer" in sys.modules, handle.status()["GRPOTrainer"])
    from trl import GRPOTrainer
    print(handle.status()["GRPOTrainer"], handle.status()["RLOOTrainer"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ["False False", "True False"] == done.stdout.splitlines()
    assert "has no" not in done.stderr


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

def length(completions, **_):
    return [len(completion) / 10 for completion in completions]

trainer = GRPOTrainer(
    model={model!r},
    reward_funcs=length,
    args=GRPOConfig(
        output_dir="out", per_device_train_batch_size={batch}, num_generations=4, max_completion_length=4,
        gradient_accumulation_steps=2, max_steps=2, report_to=[], use_cpu=True, save_strategy="no",
        logging_steps=1,
    ),
    train_dataset=Dataset.from_list([{{"prompt": f"{{number}}+1="}} for number in range(8)]),
)
{instrument}
trainer.train()
if torch.distributed.is_initialized():  # else gloo's threads may abort the interpreter as it ends
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""


def run(command: list[str], **variables: str) -> subprocess.Popen[str]:
    """Run a program in a process of its own."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"} | variables
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a program, which must succeed."""
    said, _ = process.communicate(timeout=180)
    assert 0 == process.returncode, said


def test_opentelemetry_instrument_records_a_script(model: str, tmp_path: Path) -> None:
    """
    The script does not mention recording.
    """
    pytest.importorskip("opentelemetry.instrumentation.auto_instrumentation")
    tests = str(Path(__file__).parents[1])
    (tmp_path / "train.py").write_text(SCRIPT.format(tests=tests, model=model, batch=4, instrument=""))
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, "train.py"]

    finish(run(command, MTTP_TRANSPORT=f"file://{tmp_path}/runs/", OTEL_TRACES_EXPORTER="none"))

    recording = mttp.read(tmp_path / "runs")
    assert (16, 4, 2, []) == (
        len(recording.episodes),
        len(recording.groups),
        len(recording.updates),
        recording.problems,
    )


@pytest.mark.parametrize("batch", [4, 2], ids=["apart", "spread"])
def test_two_processes_record_each_completion_once(model: str, tmp_path: Path, batch: int) -> None:
    """
    A group with members of both processes is recorded by one of them, with all members.
    """
    tests = str(Path(__file__).parents[1])
    instrument = "import mttp; mttp.instrument(trainer)"
    (tmp_path / "train.py").write_text(
        SCRIPT.format(tests=tests, model=model, batch=batch, instrument=instrument)
    )
    common = {
        "MTTP_TRANSPORT": f"file://{tmp_path}/runs/",
        "MTTP_RUN_ID": "both",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    processes = [
        run([sys.executable, "train.py"], RANK=rank, LOCAL_RANK=rank, **common) for rank in ("0", "1")
    ]
    for process in processes:
        finish(process)

    recording = mttp.read(tmp_path / "runs")
    count = 2 * 2 * 2 * batch
    assert (count, count // 4, 2, []) == (
        len(recording.episodes),
        len(recording.groups),
        len(recording.updates),
        recording.problems,
    )
    assert {episode.trace_id for episode in recording} == {
        member for group in recording.groups for member in group.episodes
    }
    for group in recording.groups:
        advantages = [recording.episode(member).advantage for member in group.episodes]
        assert advantages == list(group.advantages)
        assert {group.id} == {recording.episode(member).group for member in group.episodes}
    assert [count // 2] * 2 == [update.consumed for update in recording.updates]
    assert all(update.loss is not None for update in recording.updates)


def free_port() -> int:
    """Return a free port."""
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_the_config_is_json(model: str) -> None:
    """
    TRL's configuration is recorded as JSON data.
    """
    from mttp.integrations.trl import facts

    teacher = trainer(model)

    assert json.loads(teacher.args.to_json_string()) == facts.of(teacher)["config"]


def test_nothing_stays_instrumented() -> None:
    """
    Every test here starts with the original TRL.
    """
    assert instrumentation._everything is None or not instrumentation._everything.attached
