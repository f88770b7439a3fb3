"""
Measures one case in this process, which is a fresh one, and prints its figures as JSON.

    measure.py MODULE CASE SECONDS            measure
    measure.py MODULE CASE check FIGURES      look at what was left in this folder
    measure.py MODULE prepare [quick]         make what the cases need
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main(name: str, case: str, *asked: str) -> None:
    """Measure the case that the command line names."""
    module = import_module(name)
    if case == "prepare":
        module.prepare("quick" in asked)
    elif asked[0] == "check":
        print(json.dumps(module.CASES[case].check(json.loads(asked[1]))))
    else:
        print(json.dumps(module.CASES[case].measure(float(asked[0]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
