"""Texts of token ids, by the tokenizer's file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mttp.errors import MissingExtra, ReadError
from mttp.pages.tokens import Pieces

__all__ = ["load_tokenizer"]


def load_tokenizer(path: str | os.PathLike[str]) -> Pieces:
    """
    A function from token ids to their texts, by `tokenizer.json` or a directory that holds it.

    Raises ReadError for a file that is not a tokenizer, MissingExtra without `mttp[tokens]`.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(package="tokenizers", extra="tokens", purpose="texts of tokens") from error
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ReadError(f"{file} does not exist: give tokenizer.json, or the directory that holds it")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exceptions
        raise ReadError(f"{file} is not a tokenizer: {error}") from error

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode([*ids], skip_special_tokens=False))

    def pieces(ids: Sequence[int]) -> list[str]:
        return [_piece(decode, ids, place, tokenizer.id_to_token) for place in range(len(ids))]

    return pieces


def _piece(
    decode: Callable[[Sequence[int]], str],
    ids: Sequence[int],
    place: int,
    name: Callable[[int], str | None],
) -> str:
    """
    The text that a token adds to the one before it: alone, many tokenizers drop its leading space.

    A token that has no text of its own, such as a control token, is shown by its name.
    """
    if ids[place] < 0:
        return "·"
    alone = decode([ids[place]])
    if place and ids[place - 1] >= 0:
        before, both = decode([ids[place - 1]]), decode(ids[place - 1 : place + 1])
        alone = both[len(before) :] if both.startswith(before) else alone
    return alone or name(ids[place]) or f"<{ids[place]}>"
