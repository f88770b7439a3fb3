"""TRL trains on the data sets that recordings are converted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from datasets import Dataset, load_dataset  # noqa: E402 - it comes with TRL
from integrations import tiny  # noqa: E402 - needs torch
from trl.data_utils import apply_chat_template, is_conversational  # noqa: E402

import mttp  # noqa: E402
from mttp.reading import training_dataset  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and transformers deprecate each other's arguments


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a tiny model's directory."""
    return tiny.make(tmp_path_factory.mktemp("model"))


@pytest.fixture
def recording() -> str:
    """A recording of groups of chats, one of them with a tool."""
    with mttp.configure("file://a.jsonl"):
        for number in range(4):
            for place, answer in enumerate((str(2 * number), "no")):
                with mttp.episode(
                    task=f"t{number}", group=f"g{number}", inputs={"answer": 2 * number}
                ) as episode:
                    with episode.step() as step:
                        step.observation([{"role": "user", "content": f"{number}+{number}?"}])
                        function = {"name": "add", "arguments": {"a": number} if place else {"b": "x"}}
                        calls = (
                            {"tool_calls": [{"type": "function", "function": function}]}
                            if number == 3
                            else {}
                        )
                        step.action({"role": "assistant", "content": answer, **calls})
                    if number == 2:
                        with episode.step() as step:
                            step.observation([{"role": "tool", "name": "add", "content": "4"}])
                            step.action({"role": "assistant", "content": f"so {answer}"})
                    episode.reward(1.0 - place)
    return "a.jsonl"


def loaded(recording: str, format: Any, suffix: str) -> Any:
    """The written rows, loaded by `datasets`."""
    path = Path(f"{format}{suffix}")
    made = training_dataset(mttp.read(recording), format)
    made.write(path)
    kind = "json" if suffix == ".jsonl" else "parquet"
    found = load_dataset(kind, data_files=str(path), split="train", cache_dir="cache")

    assert len(made) == len(found)
    return found


def settings(**more: Any) -> dict[str, Any]:
    """Arguments of a training run of a step on a CPU."""
    return {
        "output_dir": "out",
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        **more,
    }


@pytest.mark.parametrize(("format", "columns"), [("sft", 2), ("dpo", 3), ("grpo", 3)])
def test_rows_are_conversational(recording: str, format: str, columns: int):
    """
    By TRL's own check, and its chat template turns each row into text.
    """
    for row in loaded(recording, format, ".jsonl"):
        row = {name: value for name, value in row.items() if name not in ("task", "answer")}
        texts = apply_chat_template(row, tiny.tokenizer())

        assert is_conversational(row)
        assert columns - (2 if format == "grpo" else 0) == len(texts) == sum(map(bool, texts.values()))


def test_sft_trains(recording: str, model: str):
    """
    On prompts and completions.
    """
    config = trl.SFTConfig(**settings())
    trainer = trl.SFTTrainer(model, args=config, train_dataset=loaded(recording, "sft", ".jsonl"))

    assert 1 == trainer.train().global_step


def test_dpo_trains(recording: str, model: str):
    """
    On the best and the worst answer of each group.
    """
    config = trl.DPOConfig(**settings())
    trainer = trl.DPOTrainer(model, args=config, train_dataset=loaded(recording, "dpo", ".jsonl"))

    assert 1 == trainer.train().global_step


def test_grpo_trains_with_the_inputs(recording: str, model: str):
    """
    A reward function gets the columns of the inputs.
    """
    answers: list[Any] = []

    def correct(completions: list[Any], answer: list[Any], task: list[Any], **_: Any) -> list[float]:
        answers.extend(zip(task, answer, strict=True))
        return [float(len(str(one))) for one in completions]

    config = trl.GRPOConfig(**settings(num_generations=2, max_completion_length=4))
    dataset = loaded(recording, "grpo", ".parquet")
    trl.GRPOTrainer(model, reward_funcs=correct, args=config, train_dataset=dataset).train()

    assert {*answers} <= {(f"t{number}", 2 * number) for number in range(4)}
    assert answers


def test_a_recorded_training_becomes_data_sets(model: str):
    """
    Completions for SFT, pairs for DPO, prompts with their answers for GRPO.
    """
    rows = [{"prompt": [{"role": "user", "content": f"{n}+{n}?"}], "answer": 2 * n} for n in range(2)]
    config = trl.GRPOConfig(**settings(num_generations=2, max_completion_length=4))
    counts = iter(range(100))

    def counted(completions: list[Any], **_: Any) -> list[float]:
        return [float(next(counts)) for _ in completions]

    with mttp.configure("file://b.jsonl"):
        trainer = trl.GRPOTrainer(
            model, reward_funcs=counted, args=config, train_dataset=Dataset.from_list(rows)
        )
        mttp.instrument(trainer)
        trainer.train()
    made = {format: training_dataset("b.jsonl", format) for format in ("sft", "dpo", "grpo")}

    assert [2, 1, 1] == [len(one) for one in made.values()]
    assert made["grpo"].rows[0] in [{**row, "task": made["grpo"].rows[0]["task"]} for row in rows]
    assert made["dpo"].rows[0]["prompt"] == made["grpo"].rows[0]["prompt"]
