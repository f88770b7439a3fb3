"""`python -m mttp.otlp.encoding`: the encoding process, which ends with the process that started it."""

from __future__ import annotations

import os
from contextlib import suppress

from mttp.otlp.frames import answer
from mttp.otlp.processes import serve

NICENESS = 5
"""Lowers the priority, so that the training loop comes first if processors are busy."""

if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICENESS)
    serve(answer)
