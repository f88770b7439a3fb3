"""`python -m mttp.otlp.encoding`: the helper, which works until the process that started it is gone."""

from __future__ import annotations

import os
from contextlib import suppress

from mttp.otlp.encoding.tasks import answer
from mttp.otlp.processes import serve

NICENESS = 5
"""Where there are not enough processors, the training loop comes first."""

if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICENESS)
    serve(answer)
