"""
Gives one target inputs that atheris chooses by the code that they reach, until one fails.

    python tests/fuzzing/guided.py otlp-json -max_total_time=600

Further arguments are libFuzzer's. It needs `pip install atheris`.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

with atheris.instrument_imports(include=["mttp"]):
    from fuzzing.targets import TARGETS
    from fuzzing.worker import run, warm_up


def main() -> None:
    """Fuzz from the good inputs of the target."""
    name, *arguments = sys.argv[1:]
    target = TARGETS[name]
    warnings.simplefilter("ignore")
    logging.disable()

    def take(data: bytes) -> None:
        if fault := run(target, data):
            raise RuntimeError(fault)

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for number, good in enumerate(target.seeds()):
            (corpus / str(number)).write_bytes(good)
        warm_up(target)
        atheris.Setup([sys.argv[0], str(corpus), "-max_len=100000", *arguments], take)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
