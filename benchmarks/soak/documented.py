"""
Judges the figures of a soak, and writes them into a page, between the markers `soak` or `spool`.

    python benchmarks/soak/documented.py soak.json docs/faults.md
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from checks import checked

_LIVE = {"blocks": "Python's blocks", "malloc": "megabytes of malloc"}
_PROCESSES = {"training": "training", "worker": "encoding"}
_BETWEEN = r"(<!-- {0}:[^\n]*-->\n).*?(<!-- end of {0} -->)"


def documented(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    files, receiver = found["files"], found["receiver"]
    kinds = Counter(fault["kind"] for fault in found["faults"])
    checks = checked(found, [found["training"], *found["children"]])
    cores = sum(found["cpu_share"].values())
    refused, lost = receiver["refused"], found["training"]["stats"]["lost"]
    queue = {cause: count for cause, count in lost.items() if cause not in refused}
    rows = [
        ("time", f"{found['seconds'] / 60:.1f} minutes, seed {found['asked']['seed']}"),
        ("rate", f"{found['steps_per_second']:,.0f} steps per second, {cores:.2f} cores for everything"),
        ("faults", f"{sum(kinds.values())}, of {len(kinds)} kinds"),
        (
            "in the files",
            f"{files['distinct']:,} spans of {files['complete_episodes']:,} episodes, none twice",
        ),
        ("at the receiver", f"{receiver['distinct']:,} spans, and {receiver['duplicates']:,} of them again"),
        ("refused by the receiver", _causes(refused)),
        ("lost before they were sent", _causes(queue)),
        *(
            (f"in use of the training process: {_LIVE[name]}", _growth(found["live"][name]))
            for name in found["live"]
        ),
        *(
            (f"resident memory of the {_PROCESSES[name]} process", _memory(found["memory"][name]))
            for name in found["memory"]
        ),
        ("checks that hold", f"{sum(check.holds for check in checks)} of {len(checks)}"),
        *(("**does not hold**", f"{check.name}: {check.found}") for check in checks if not check.holds),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in rows)


def _causes(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} as `{cause}`" for cause, count in sorted(counts.items())) or "none"


def _growth(figures: dict[str, float]) -> str:
    return f"{figures['per_hour']:+,.1f} per hour ({figures['low']:+,.1f} to {figures['high']:+,.1f})"


def _memory(figures: dict[str, Any]) -> str:
    if "mb_per_hour" not in figures:
        return "too few minutes to judge"
    interval = f"{figures['low']:+.1f} to {figures['high']:+.1f}"
    span = f"{figures['first_mb']:.0f} MB after the warm-up, {figures['last_mb']:.0f} MB at the end"
    return f"{figures['mb_per_hour']:+.1f} MB per hour ({interval}): {span}"


def main() -> None:
    """Replace what is between the markers."""
    found, page = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    between = re.compile(_BETWEEN.format("spool" if found["asked"]["spool"] else "soak"), re.DOTALL)
    page.write_text(between.sub(lambda at: f"{at[1]}{documented(found)}\n{at[2]}", page.read_text()))


if __name__ == "__main__":
    main()
