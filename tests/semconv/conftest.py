"""The registry's tool is no part of the package; its tests put it on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "semconv"))
