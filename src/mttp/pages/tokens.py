"""The tokens of a step as a block: aligned columns of ids, texts and the numbers of each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from mttp.model.episodes import Tokens
from mttp.pages.blocks import Block
from mttp.pages.words import number
from mttp.reading.jsonable import jsonable

__all__ = ["Pieces", "token_block"]

Pieces: TypeAlias = Callable[[Sequence[int]], "list[str]"]
"""Returns the text of each token id."""

_NO_ID = -1


def token_block(tokens: Tokens, pieces: Pieces | None) -> Block:
    """Return the prompt and the completion with their numbers, and in words what there is of them."""
    arrays = tokens.arrays()
    prompt, completion = tokens.prompt_count or 0, tokens.count or 0
    if tokens.prompt_ids is None:
        prompt = 0  # without ids a prompt is only a number
    ids = [
        *(tokens.prompt_ids.tolist() if tokens.prompt_ids is not None else []),
        *(tokens.ids.tolist() if tokens.ids is not None else [_NO_ID] * completion),
    ]
    placed = {
        name: _placed(value, tokens.alignment.get(name, "unaligned"), prompt, completion, tokens)
        for name, value in arrays.items()
        if name not in ("ids", "prompt_ids")
    }
    texts = _pieces(tokens, ids, pieces, prompt)
    return {
        "type": "tokens",
        "words": ", ".join(_words(tokens, [*arrays])),
        "prompt_length": prompt,
        "ids": ids if arrays or tokens.texts else [],
        "pieces": texts,
        "values": {name: value for name, value in placed.items() if value is not None},
        "note": _note(
            tokens, [name for name, value in placed.items() if value is None], has_texts=texts is not None
        ),
    }


def _words(tokens: Tokens, arrays: Sequence[str]) -> Iterator[str]:
    if tokens.count is not None:
        yield f"{tokens.count:,} sampled"
    if tokens.prompt_count is not None:
        yield f"{tokens.prompt_count:,} prompt"
    if tokens.parent is not None:
        yield f"after {tokens.parent[1]:,} of step {tokens.parent[0]}"
    if tokens.logprobs is not None and len(tokens.logprobs):
        yield f"mean logprob {number(float(np.mean(tokens.logprobs, dtype=np.float64)))}"
    if arrays:
        yield f"arrays {' '.join(arrays)}"
    if tokens.tokenizer is not None:
        yield tokens.tokenizer
    if tokens.omitted_reason is not None:
        yield f"omitted: {tokens.omitted_reason}"


def _pieces(
    tokens: Tokens, ids: Sequence[int], pieces: Pieces | None, prompt: int
) -> list[str | None] | None:
    """Return the text of each token: by the tokenizer, else as the server gave them; None where unknown."""
    if pieces is not None and tokens.ids is not None:
        return [*pieces(ids)]
    if tokens.texts and len(tokens.texts) == len(ids) - prompt:
        return [*[None] * prompt, *tokens.texts]
    return None


def _placed(
    values: np.ndarray[Any, Any], alignment: str, prompt: int, completion: int, tokens: Tokens
) -> list[float | None] | None:
    """
    Return a value for each token of prompt and completion, None for tokens without one.

    None if the values fit no tokens.
    """
    numbers: list[float | None] = jsonable(_rounded(values))
    total = prompt + completion
    if alignment == "completion" and len(numbers) == completion:
        return [None] * prompt + numbers
    if alignment == "prompt" and len(numbers) == prompt:
        return numbers + [None] * completion
    if alignment == "all" and len(numbers) >= total:
        return numbers[len(numbers) - total :]  # without those of a prefix that an earlier block holds
    if alignment == "sampled" and tokens.masks is not None:
        sampled = np.flatnonzero(tokens.masks)
        if len(sampled) == len(numbers) and len(tokens.masks) <= total:
            return _spread(numbers, sampled + total - len(tokens.masks), total)
    return None


def _rounded(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values with five significant digits; more would be most of a page's size."""
    if values.dtype.kind != "f":
        return values
    wide = values.astype(float)
    with np.errstate(all="ignore"):
        size = np.floor(np.log10(np.abs(wide)))
        scale = 10.0 ** (4 - np.where(np.isfinite(size), np.clip(size, -280, 280), 0))
        rounded: np.ndarray[Any, Any] = np.where(np.isfinite(wide), np.round(wide * scale) / scale, wide)
    return rounded


def _spread(values: Sequence[float | None], places: np.ndarray[Any, Any], total: int) -> list[float | None]:
    spread: list[float | None] = [None] * total
    for place, value in zip(places.tolist(), values, strict=True):
        spread[place] = value
    return spread


def _note(tokens: Tokens, unaligned: Sequence[str], *, has_texts: bool) -> str:
    parts = []
    if tokens.tokenizer:
        parts.append(f"tokenizer {tokens.tokenizer}")
        if not has_texts:
            parts.append("its file as --tokenizer gives the texts")
    if tokens.logprob_basis:
        parts.append(f"log probabilities are {tokens.logprob_basis}")
    if tokens.parent is not None:
        parts.append(f"the first {tokens.parent[1]:,} prompt tokens are those of step {tokens.parent[0]}")
    if tokens.ids is None:
        parts.append("the token ids were not recorded")
    if unaligned:
        parts.append(f"not shown, since they fit no tokens: {', '.join(unaligned)}")
    return "; ".join(parts)
