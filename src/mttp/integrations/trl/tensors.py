"""What TRL made of a batch for its loss, as arrays whose rows are padded to one length."""

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
    """The tensors of a batch; `logprobs` are the policy's and the reference's that RLOO keeps."""

    def __init__(self, result: Mapping[str, Any], logprobs: Sequence[Any]) -> None:
        names = (*_LOGPROBS, *_OTHERS)
        found = {name: matrix(result[name]) for name in names if result.get(name) is not None}
        self.advantages: Array | None = found.get("advantages")
        """Shape [completions], or [completions, tokens]."""
        self.mask: Array | None = found.get("completion_mask")
        """1 where a token counts for the loss as far as its completion goes, shape [completions, tokens]."""
        self._tools = found.get("tool_mask")
        self._prompts = found.get("prompt_ids"), found.get("prompt_mask")
        self._logprobs = {name: found[key] for key, name in _LOGPROBS.items() if key in found}
        for name, given in zip(("trainer_logprobs", "ref_logprobs"), logprobs, strict=False):
            self._logprobs[name] = matrix(given)

    def prompt(self, row: int) -> Array | None:
        """A prompt's token ids, without the padding on their left; None where they are not known."""
        ids, mask = self._prompts
        return None if ids is None or mask is None else ids[row][mask[row].astype(bool)]

    def sampled(self, row: int, count: int) -> Array | None:
        """1 for each token that the policy sampled, 0 for those of tools; None where there are no tools."""
        return None if self._tools is None else self._tools[row, :count]

    def arrays(self, row: int, count: int) -> dict[str, Array]:
        """What there is per completion token, by the names that `mttp.Tokens` has."""
        found = {name: values[row, :count] for name, values in self._logprobs.items()}
        if self.mask is not None:
            found["masks"] = self.mask[row, :count]
            if self._tools is not None:
                found["masks"] = found["masks"] * self._tools[row, :count]
        if self.advantages is not None and self.advantages.ndim == 2:
            found["advantages"] = self.advantages[row, :count]
        return found

    def is_masked(self, row: int) -> bool:
        """Whether a completion counts for nothing in the loss."""
        return self.mask is not None and not self.mask[row].any()
