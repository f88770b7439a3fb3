"""
Rows that say what mttp costs and saves, beside what people would use otherwise.

    python benchmarks                     all of them, in about 20 minutes
    python benchmarks caller stall        some rows, by name or number
    python benchmarks --case mttp caller  only cases whose name begins so
    python benchmarks --quick             whether everything works; its figures say nothing
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from harness import Absent, Failed, Rounds, environments, measured
from report import documented, machine, printed, written
from rows import ROWS, Row, judged


def main() -> int:
    """Run the benchmarks that the command line asks for."""
    options = _options()
    chosen = {
        number: row
        for number, row in enumerate(ROWS, 1)
        if not options.rows or _asked(options.rows, number, row)
    }
    workloads = list(dict.fromkeys(part.workload for row in chosen.values() for part in row.parts))
    if options.install:
        for environment in environments(workloads):
            environment.install()
        return 0
    before, start = machine(), time.perf_counter()
    found, failures = _measured(workloads, options)
    rows = [_answered(number, row, found, failures, quick=options.quick) for number, row in chosen.items()]
    about = _about(before, machine(), options, time.perf_counter() - start)
    realistic = found.get("realistic", [])
    print(printed(rows, realistic, about))
    if options.json:
        report = {"machine": before, "about": about, "rows": rows, "rounds": found, "failures": failures}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2, default=str) + "\n")
    failed = [str(one) for one in failures.values() if not isinstance(one, Absent)]
    if options.docs and not failed and not (options.quick or options.rows or options.case):
        written(options.docs, documented(rows, realistic, about))
    for one in failed:
        print(f"\nfailed: {one}", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"1 to {len(ROWS)}, or {', '.join(names)}")
    parser.add_argument("--case", action="append", help="measure only cases whose name begins so; repeatable")
    parser.add_argument("--rounds", type=int, help="fresh processes for each case")
    parser.add_argument("--quick", action="store_true", help="as little as possible, once")
    parser.add_argument("--json", type=Path, help="write every figure of every round there")
    parser.add_argument(
        "--docs", type=Path, help="write the tables into this page, if all rows were measured"
    )
    parser.add_argument("--install", action="store_true", help="only make the environments that are needed")
    options = parser.parse_args()
    known = {*names, *(str(number) for number in range(1, len(ROWS) + 1))}
    if unknown := [row for row in options.rows if row not in known]:
        parser.error(f"no such row: {', '.join(unknown)}; there are 1 to {len(ROWS)}, or {', '.join(names)}")
    return options


def _asked(names: list[str], number: int, row: Row) -> bool:
    return row.name in names or str(number) in names


def _measured(
    workloads: list[str], options: argparse.Namespace
) -> tuple[dict[str, Rounds], dict[str, Failed]]:
    """Return the figures of each workload, and the reasons for missing ones."""
    found: dict[str, Rounds] = {}
    failures: dict[str, Failed] = {}
    for name in workloads:
        try:
            found[name] = measured(
                name, quick=options.quick, rounds=options.rounds, begins=tuple(options.case or [""]), say=_say
            )
        except Failed as failure:
            failures[name] = failure
    _say("")
    return found, failures


def _say(text: str) -> None:
    """Print the current step: on one line of a terminal, else a line each."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:79]}", end="", file=sys.stderr, flush=True)
    elif text:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _answered(
    number: int, row: Row, found: dict[str, Rounds], failures: dict[str, Failed], *, quick: bool
) -> dict[str, Any]:
    parts, absent = [], []
    for part in row.parts:
        if part.workload in failures:
            absent.append(f"{part.text or row.name}: {failures[part.workload]}")
            continue
        try:
            parts.append(judged(part, found[part.workload], quick=quick))
        except KeyError as missing:
            absent.append(f"{part.text or row.name}: {missing.args[0]} was not measured")
    return {"number": number, "name": row.name, "text": row.text, "parts": parts, "absent": "; ".join(absent)}


def _about(before: dict[str, Any], after: dict[str, Any], options: argparse.Namespace, took: float) -> str:
    """Return the machine, the time and duration of the run, and notes about the figures."""
    said = (
        f"{before['processor']}, {before['processors']} processors, Python {before['python']}, "
        f"{before['system']}; {before['time']}, in {took / 60:.0f} minutes; load average {before['load']} "
        f"before and {after['load']} after."
    )
    if max(before["load"], after["load"] - 2) > 1:
        said += (
            " Other programs were busy: times say little, ratios more, the lowest and the highest how much."
        )
    return f"{said} A quick run: the figures say nothing." if options.quick else said


if __name__ == "__main__":
    sys.exit(main())
