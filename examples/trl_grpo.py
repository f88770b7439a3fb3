"""Train a tiny language model to answer in digits with TRL's GRPOTrainer, and record every completion.

The model is created here, with some 20,000 weights and a token per character, so that a CPU is enough.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import mttp

CHARACTERS = "0123456789+=abcdef"
SPECIAL = ("<pad>", "<eos>")


def tokenizer() -> Any:
    """Create a tokenizer with a token per character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = Tokenizer(models.WordLevel({token: i for i, token in enumerate([*SPECIAL, *CHARACTERS])}))
    tokens.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokens.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>")


def model(tokens: Any, seed: int) -> Any:
    """Create an untrained transformer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    config = Qwen2Config(
        vocab_size=len(tokens),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=tokens.pad_token_id,
        eos_token_id=tokens.eos_token_id,
        bos_token_id=None,
    )
    untrained = Qwen2ForCausalLM(config)
    untrained.config._name_or_path = "tiny-qwen2"
    return untrained


def in_digits(completions: list[str], **_: Any) -> list[float]:
    """Return the share of digits in each completion."""
    return [sum(map(str.isdigit, text)) / max(len(text), 1) for text in completions]


def correct(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Return 1 for each completion that begins with the right digit, else 0."""
    return [float(text.startswith(right)) for text, right in zip(completions, answer, strict=True)]


def train(updates: int, seed: int, output: str) -> None:
    """Train for a number of updates; recording takes one line."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokens = tokenizer()
    sums = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(5)]
    config = GRPOConfig(
        output_dir=output,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=4,
        max_steps=updates,
        learning_rate=1e-2,
        reward_weights=[0.5, 1.0],
        logging_steps=updates,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=seed,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model(tokens, seed),
        reward_funcs=[in_digits, correct],
        args=config,
        train_dataset=Dataset.from_list(sums),
        processing_class=tokens,
    )
    mttp.instrument(trainer)  # the one added line
    trainer.train()


def show(recording: mttp.Recording) -> None:
    """Print the rewards at the start and the end, one group, and the last update."""
    print(repr(recording))
    window = len(recording.groups) // 4
    for name, groups in (("first", recording.groups[:window]), ("last", recording.groups[-window:])):
        rewards = [reward for group in groups for reward in group.rewards]
        print(f"mean reward in the {name} quarter: {sum(rewards) / len(rewards):.2f}")

    group = max(recording.groups, key=lambda group: group.reward_std or 0.0)
    print(f"the group with the largest reward spread, of {group.task}:")
    for trace_id in group.episodes:
        episode = recording.episode(trace_id)
        step, parts = episode.steps[0], episode.reward.components
        scores = ", ".join(f"{name} {score:.2f}" for name, score in parts.items())
        print(f"  {step.observation}{step.action:5} {scores}, advantage {episode.advantage:+.2f}")

    update = recording.updates[-1]
    print(
        f"update {update.index}: entropy {update.entropy:.2f}, gradient {update.grad_norm:.2f}, "
        f"learned from {update.consumed} episodes of policy version {update.policy_version_before}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train, record, and print the recording."""
    parser = argparse.ArgumentParser(description="Train a tiny language model with TRL, and record it.")
    parser.add_argument("--updates", type=int, default=40, help="updates to make (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: %(default)s)")
    parser.add_argument("--out", default="runs/trl.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    with mttp.configure(f"file://{args.out}", run="trl-grpo", seed=args.seed):
        train(args.updates, args.seed, f"{args.out}.trainer")
    show(mttp.read(args.out))


if __name__ == "__main__":
    main()
