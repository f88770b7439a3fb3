"""Rows of formats with one row for each completion, as their libraries save them."""

from __future__ import annotations

CHAT = [{"role": "user", "content": "2+2?"}]
TRL = {
    "step": 3,
    "prompt": CHAT,
    "completion": [{"role": "assistant", "content": "4"}],
    "correct": 1.0,
    "tests": 3,
    "answer": "4",
    "advantage": 0.7,
}
VERL = {"input": "user\n2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 3, "acc": True, "pred": "4"}
SKYRL = {
    "input_prompt": "2+2?",
    "output_response": "4",
    "score": [0.0, 0.0, 1.0],
    "stop_reason": "length",
    "env_class": "gsm8k",
    "env_extras": {"ground_truth": "4"},
    "data_source": "gsm8k/test",
}
OPENRLHF = {"input": "2+2?", "output": "4", "reward": 0.5, "index": 7}
NEMO = {
    "idx": 0,
    "content": [["2+2?", "4"]],
    "rewards": [1.0],
    "input_lengths": [5],
    "token_ids": [[11, 12, 13, 14, 15, 0, 0]],
    "token_loss_mask": [[0, 0, 1, 1, 1, 0, 0]],
    "advantages": [[0.0, 0.0, 0.5, 0.5, 0.5, 0.0, 0.0]],
    "generation_logprobs": [[0.0, 0.0, -0.1, -0.2, -0.3, 0.0, 0.0]],
    "prev_logprobs": [[0.0, 0.0, -0.2, -0.2, -0.2, 0.0, 0.0]],
    "agent_ref": [{"name": "simple"}],
}
