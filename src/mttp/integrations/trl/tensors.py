"""The padded arrays that TRL computes from a batch for its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mttp.integrations.trl.trainers import matrix

__all__ = ["Tensors"]

Array = np.ndarray[Any, Any]

_LOGPROBS = {
    "sampling_per_token_logps": "logprobs",
    "old_per_token_logps": "trainer_logprobs",
    "ref_per_token_logps": "ref_logprobs",
}
"""Arrays of `mttp.Tokens` by TRL's names."""
_OTHERS = ("prompt_ids", "prompt_mask", "completion_mask", "tool_mask", "advantages")


class Tensors:
    """The arrays of one batch; `logprobs` are RLOO's, under the policy and under the reference model."""

    def __init__(self, result: Mapping[str, Any], logprobs: Sequence[Any]) -> None:
        names = (*_LOGPROBS, *_OTHERS)
        matrices = {name: matrix(result[name]) for name in names if result.get(name) is not None}
        self.advantages: Array | None = matrices.get("advantages")
        """Shape [completions], or [completions, tokens]."""
        self.mask: Array | None = matrices.get("completion_mask")
        """1 for completion tokens, 0 for padding and masked completions; shape [completions, tokens]."""
        self._tools = matrices.get("tool_mask")
        self._prompts = matrices.get("prompt_ids"), matrices.get("prompt_mask")
        self._logprobs = {name: matrices[key] for key, name in _LOGPROBS.items() if key in matrices}
        for name, tensor in zip(("trainer_logprobs", "ref_logprobs"), logprobs, strict=False):
            self._logprobs[name] = matrix(tensor)

    def prompt(self, row: int) -> Array | None:
        """Return a prompt's token ids without the left padding; None if they are unknown."""
        ids, mask = self._prompts
        return None if ids is None or mask is None else ids[row][mask[row].astype(bool)]

    def sampled(self, row: int, count: int) -> Array | None:
        """Return per token 1 if the policy sampled it, 0 if it is from a tool; None without tools."""
        return None if self._tools is None else self._tools[row, :count]

    def arrays(self, row: int, count: int) -> dict[str, Array]:
        """Return the arrays with one element per completion token, by the field names of `mttp.Tokens`."""
        arrays = {name: values[row, :count] for name, values in self._logprobs.items()}
        if self.mask is not None:
            arrays["masks"] = self.mask[row, :count]
            if self._tools is not None:
                arrays["masks"] = arrays["masks"] * self._tools[row, :count]
        if self.advantages is not None and self.advantages.ndim == 2:
            arrays["advantages"] = self.advantages[row, :count]
        return arrays

    def is_masked(self, row: int) -> bool:
        """Return whether the loss leaves a completion out."""
        return self.mask is not None and not self.mask[row].any()
