"""
How large files are, per episode of 8 steps of a reward, 256 token ids and 256 float32 log probabilities.

64 episodes of random numbers that never repeat are recorded once, into memory and into a file at default
settings, where arrays are packed. `native arrays, short` are the memory's spans as OTLP JSON lines with
each number written out, a float32 with no more digits than tell it from others; `native arrays` are the
same as they are written by us and by the official exporter, to which a float32 is a double with up to 17
digits. `gzip_bytes` and `zstd_bytes` are the same lines at the levels that are used by default, 3 and 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from goals import Goal, share
from harness import main
from questions import Case, Measure, Question
from workload import POOL, episodes, told

EPISODES = POOL
FIGURES = {"bytes": "bytes per episode", "gzip_bytes": "with gzip", "zstd_bytes": "with zstd"}


def _recorded() -> tuple[bytes, list[Any]]:
    """The file as our transport writes it, and the spans as memory keeps them."""
    import mttp

    path = Path("own.jsonl").absolute()
    with mttp.configure(["memory://", f"file://{path}"]) as session:
        for steps in episodes(EPISODES):
            with mttp.episode() as episode:
                for reward, ids, logprobs in steps:
                    with episode.step() as step:
                        step.reward(reward)
                        step.tokens(ids=ids, logprobs=logprobs)
        records = list(session.records())
    return path.read_bytes(), records


def packed() -> bytes:
    """What our transport writes."""
    return _recorded()[0]


def native() -> bytes:
    """Each number written out."""
    from mttp.wire.otlp_json import encode_records

    return b"".join(encode_records(_recorded()[1]))


def short() -> bytes:
    """Each number written out, floats as short as they can be."""
    from mttp.wire.otlp_json import encode_records

    records = _recorded()[1]
    return b"".join(encode_records(replace(one, attributes=_shortened(one.attributes)) for one in records))


def _shortened(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """With doubles that are written as the float32 is."""
    return {
        key: [float(str(one)) for one in value] if getattr(value, "dtype", None) == np.float32 else value
        for key, value in attributes.items()
    }


def measured(write: Callable[[], bytes]) -> Measure:
    """A measure of a file's size."""

    def measure(_: float) -> tuple[bytes, dict[str, float]]:
        import zstandard

        import mttp

        data, path = write(), Path("again.jsonl")
        path.write_bytes(data)
        steps = [step for episode in mttp.read(path).episodes for step in episode.steps]
        blocks = [(step.reward, step.tokens) for step in steps if step.tokens is not None]
        said = told((reward, one.ids, np.float32(one.logprobs)) for reward, one in blocks)
        return said, {
            "bytes": len(data) / EPISODES,
            "gzip_bytes": len(zlib.compress(data, 3, 31)) / EPISODES,
            "zstd_bytes": len(zstandard.ZstdCompressor(1).compress(data)) / EPISODES,
        }

    return measure


QUESTIONS = {
    "size": Question(
        "the size of files",
        FIGURES,
        {
            "native arrays, short": Case(measured(short)),
            "native arrays": Case(measured(native)),
            "mttp": Case(measured(packed)),
        },
        [
            Goal(
                "8",
                "bytes per episode: packed file over native arrays, float32",
                share("mttp", "native arrays, short", "bytes"),
                0.35,
                0.3,
            )
        ],
        once=True,
    )
}

if __name__ == "__main__":
    main(QUESTIONS)
