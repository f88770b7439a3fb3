"""The stopping callback in a training run of TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from datasets import Dataset
from integrations import tiny
from integrations.diagnosed import play
from trl import GRPOConfig, GRPOTrainer

import mttp
from mttp.integrations import stopping

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and transformers deprecate each other's arguments


def length(completions: list[Any], **_: Any) -> list[float]:
    return [len(str(completion)) / 10 for completion in completions]


@pytest.mark.parametrize(("hacks", "steps"), [(True, 2), (False, 4)])
def test_a_run_trains_until_its_diagnosis_says_stop(tmp_path: Path, hacks: bool, steps: int) -> None:
    """
    A hacked run ends with the optimizer step that is diagnosed; a healthy one has all its steps.
    """
    found: list[mttp.study.Diagnosis] = []
    trainer = GRPOTrainer(
        model=tiny.make(tmp_path),
        reward_funcs=[length],
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=4,
            max_steps=4,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": f"{number}+1="} for number in range(8)]),
        processing_class=tiny.tokenizer(),
        callbacks=[stopping.trl_callback(every=2, on_diagnosis=found.append)],
    )

    with mttp.configure("memory://"):
        play(hacks)
        trainer.train()

    assert steps == trainer.state.global_step
    assert [hacks] * (1 if hacks else 2) == [one.should_stop for one in found]
