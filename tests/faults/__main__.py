"""
Causes every fault, and writes the measurements into a page.

    python tests/faults docs/faults.md
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from faults import FAULTS  # noqa: E402 - the tests are no package that is installed

_BEGIN, _END = "<!-- faults: measured by `python tests/faults docs/faults.md` -->", "<!-- end of faults -->"


def main() -> None:
    """Write the list between its marks."""
    logging.getLogger("mttp").setLevel(logging.CRITICAL)
    rows = []
    for fault in FAULTS.values():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(f"- {fault.name} {fault.promise} {fault.cause(Path(folder))}.")
        print(rows[-1], flush=True)
    page = Path(sys.argv[1])
    head, _, rest = page.read_text().partition(_BEGIN)
    page.write_text("\n".join([f"{head}{_BEGIN}", *rows, _END]) + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
