"""
Writes the counts of a fuzzing run into a page, between its markers.

    python tests/fuzzing/documented.py fuzz.json docs/faults.md
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_BETWEEN = re.compile(r"(<!-- fuzz:[^\n]*-->\n).*?(\n<!-- end of fuzz -->)", re.DOTALL)


def documented(found: dict[str, Any]) -> str:
    """The counts as Markdown."""
    targets = found["targets"]
    total = sum(one["inputs"] for one in targets.values())
    seconds = sum(one["seconds"] for one in targets.values())
    counts = ", ".join(f"{name} {one['inputs']:,}" for name, one in targets.items())
    return f"{total:,} inputs in {seconds / 60:.0f} minutes of processes, seed {found['seed']}: {counts}."


def main() -> None:
    """Replace what is between the markers."""
    found, page = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    page.write_text(_BETWEEN.sub(lambda at: at[1] + documented(found) + at[2], page.read_text()))


if __name__ == "__main__":
    main()
