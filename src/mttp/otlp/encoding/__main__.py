"""The worker process, `python -m mttp.otlp.encoding`, which ends with the process that started it."""

from __future__ import annotations

import os
from contextlib import suppress

from mttp.otlp.encoding.tasks import answer
from mttp.otlp.processes import serve

NICENESS = 5
"""Priority below that of the training loop, which needs the processors first."""

if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICENESS)
    serve(answer)
