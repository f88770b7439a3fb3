"""
What recording costs a training step of TRL's GRPOTrainer, on a CPU; it needs an environment that has TRL.

A transformer of some 20,000 weights answers 8 prompts 8 times with 64 tokens each, is scored by two
functions, and learns from that: one step, bare or recorded to a file at default settings. Of 12 steps (4 in a
quick run) the first two don't count. `step_ms` is CPU time of everything per step, `caller_ms` that of the
training thread alone, `wall_ms` is with the final flush. What the model has learned must be the same, weight
by weight.

On a GPU, with a model worth its name, a step takes seconds, and recording a completion what it takes here.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import main
from questions import Case, Measure, Question
from usage import cpu_seconds, peak_mb

COMPLETIONS, TOKENS, WARM = 64, 64, 2
FIGURES = {
    "step_ms": "CPU ms per step",
    "caller_ms": "CPU ms of the caller",
    "wall_ms": "ms per step, flush included",
    "peak_mb": "peak memory in MB",
}


def _trainer(steps: int) -> Any:
    """A trainer of the example's model."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    import trl_grpo
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokens = trl_grpo.tokenizer()
    model = trl_grpo.model(tokens, 0)
    model.config.max_position_embeddings = 2 * TOKENS
    config = GRPOConfig(
        output_dir="trained",
        per_device_train_batch_size=COMPLETIONS,
        num_generations=8,
        max_completion_length=TOKENS,
        max_steps=steps,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_steps=steps,
        disable_tqdm=True,
    )
    return GRPOTrainer(
        model=model,
        reward_funcs=[trl_grpo.in_digits, trl_grpo.correct],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": f"{a}+1=", "answer": f"{a + 1}"} for a in range(8)]),
        processing_class=tokens,
    )


class _Clock:
    """When the steps that count began, on three clocks."""

    def __init__(self, callback: type[Any]) -> None:
        clock, self.began = self, [0.0, 0.0, 0.0]

        class Begin(callback):  # type: ignore[misc]  # found at run time
            def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
                """The first steps are over."""
                if state.global_step == WARM:
                    clock.began = clock.now()

        self.callback = Begin()

    @staticmethod
    def now() -> list[float]:
        """CPU time of everything, of this thread, and wall time, in milliseconds."""
        return [1e3 * cpu_seconds(), 1e3 * time.thread_time(), 1e3 * time.perf_counter()]


def trained(recorded: bool) -> Measure:
    """A measure of training."""

    def measure(seconds: float) -> tuple[bytes, dict[str, float]]:
        from transformers import TrainerCallback

        warnings.simplefilter("ignore")
        steps = 12 if seconds > 0.2 else 4
        trainer, clock, flush = _trainer(steps), _Clock(TrainerCallback), None
        if recorded:
            import mttp

            flush = mttp.configure("file://own.jsonl").flush
            mttp.instrument(trainer)
        trainer.add_callback(clock.callback)
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        caller = clock.now()[1]
        if flush is not None:
            assert flush()
            _check(steps)
        everything, _, wall = clock.now()
        took = [end - begin for end, begin in zip((everything, caller, wall), clock.began, strict=True)]
        each = dict(
            zip(("step_ms", "caller_ms", "wall_ms"), (one / (steps - WARM) for one in took), strict=True)
        )
        return _digest(trainer.model), {**each, "peak_mb": peak_mb()}

    return measure


def _digest(model: Any) -> bytes:
    """What the model has learned."""
    found = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        found.update(name.encode() + values.detach().numpy().tobytes())
    return found.digest()


def _check(steps: int) -> None:
    import mttp

    recording = mttp.read("own.jsonl")
    assert (COMPLETIONS * steps, steps) == (len(recording.episodes), len(recording.updates))


def _has_no_trl() -> str:
    """Why training can't be measured."""
    return "" if find_spec("trl") else "TRL is not installed here"


QUESTIONS = {
    "completions": Question(
        "a training step of TRL's GRPOTrainer, 64 completions of 64 tokens",
        FIGURES,
        {
            "bare": Case(trained(False), absent=_has_no_trl),
            "mttp": Case(trained(True), absent=_has_no_trl),
        },
        own="bare",
    )
}

if __name__ == "__main__":
    main(QUESTIONS)
