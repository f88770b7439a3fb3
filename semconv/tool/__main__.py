"""`python semconv/tool`: checks the registry and writes what is derived from it."""

from __future__ import annotations

import sys
from pathlib import Path

# Python puts this folder first, where it is no package; its parent is where `tool` is one.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from tool.command import main  # noqa: E402 - the path comes first

if __name__ == "__main__":
    sys.exit(main())
