"""The committed registry, which takes a while to read."""

from pathlib import Path

from tool.load import build, read

FOLDER = Path(__file__).parents[2] / "semconv"
DOCUMENTS = read(FOLDER)
REGISTRY = build(DOCUMENTS)
