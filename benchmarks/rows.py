"""The rows of the report: what each compares, and which value it must reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cases import Figures

__all__ = ["ROWS", "Part", "Row", "judged"]

Value = Callable[[Mapping[str, Figures]], float]
"""A number from the figures of one round, by case."""


@dataclass(frozen=True, slots=True)
class Part:
    """One number of a row."""

    text: str
    """What is compared; empty if the row says it."""
    workload: str
    """The module that measures it."""
    value: Value
    must: float | None = None
    """The required value; None if the number is only reported."""
    good: float | None = None
    """The desired value."""
    at_least: bool = True
    """Whether higher is better."""
    unit: str = "x"


@dataclass(frozen=True, slots=True)
class Row:
    """One of the rows."""

    name: str
    """Name on the command line."""
    text: str
    """Description, one line."""
    parts: Sequence[Part]


def _times(other: str, own: str, figure: str) -> Value:
    """Return the ratio of the other figure to that of mttp."""
    return lambda found: found[other][figure] / found[own][figure]


def _worst(figure: str, *cases: str) -> Value:
    """Return the largest figure of several cases."""
    return lambda found: max(found[case][figure] for case in cases)


def _added(own: str, other: str, figure: str) -> Value:
    """Return the relative difference of mttp's figure."""
    return lambda found: found[own][figure] - found[other][figure]


_OWN = ("mttp, lists", "mttp, arrays")


def _beside_the_sdk(figure: str, must: float, good: float) -> list[Part]:
    return [
        Part(kind, "realistic", _times(f"SDK, JSON file, {kind}", f"mttp, {kind}", figure), must, good)
        for kind in ("lists", "arrays")
    ]


ROWS = (
    Row(
        "caller",
        "Chats, caller's time per step: SDK with JSON file over mttp",
        _beside_the_sdk("mean_us", 6, 10),
    ),
    Row(
        "cpu",
        "Chats, CPU of all processes per step: SDK with JSON file over mttp",
        _beside_the_sdk("cpu_us", 10, 15),
    ),
    Row(
        "stall",
        "Chats, longest step in 10 seconds",
        [Part("", "realistic", _worst("stall_ms", *_OWN), 100, 20, at_least=False, unit="ms")],
    ),
    Row(
        "tokens",
        "Tokens alone, caller's CPU per step at steady state: SDK over mttp",
        [
            Part("lists", "tokens", _times("SDK, lists", "mttp, lists", "caller_us"), 10, 15),
            Part("arrays", "tokens", _times("SDK, arrays", "mttp, arrays", "caller_us"), 15, 25),
        ],
    ),
    Row(
        "close",
        "Chats, closing after 10 seconds",
        [Part("", "realistic", _worst("close_s", *_OWN), 2, 0.5, at_least=False, unit="s")],
    ),
    Row(
        "loop",
        "A numpy loop of 0.7 ms that records 2,000 steps of chats a second",
        [
            Part("slower by", "loop", _worst("slower_pct", "mttp"), 8, 3, at_least=False, unit="%"),
            Part("if nothing is recorded, by", "loop", _worst("slower_pct", "nothing recorded"), unit="%"),
        ],
    ),
    Row(
        "environments",
        "Environments at default settings",
        [
            Part(
                "CartPole: recorded over bare",
                "cartpole",
                _times("mttp", "bare", "step_us"),
                2,
                1.5,
                at_least=False,
            ),
            *(
                Part(text, "dqn", _added("mttp", "bare", figure), at_least=False, unit="ms")
                for text, figure in {
                    "DQN, a gradient step: more time": "step_ms",
                    "DQN, a gradient step: more CPU": "cpu_ms",
                }.items()
            ),
        ],
    ),
    Row(
        "reading",
        "Reading 200 MB of OTLP JSON lines",
        [
            Part(
                "group-by: DuckDB over mttp",
                "reading",
                _times("DuckDB, group-by", "mttp, group-by", "process_s"),
                5,
                8,
            ),
            Part(
                "all columns: orjson over mttp",
                "reading",
                _times("orjson, columns", "mttp, columns", "process_s"),
                1.4,
                2,
            ),
            Part(
                "all of chats: orjson over mttp",
                "reading",
                _times("orjson, chats", "mttp, chats", "process_s"),
                0.7,
                1,
            ),
            Part(
                "memory, a loop over chats",
                "reading",
                _worst("memory_mb", "mttp, scan"),
                250,
                150,
                at_least=False,
                unit="MB",
            ),
        ],
    ),
    Row(
        "encoder",
        "Protobuf: official over mttp",
        [Part("", "encoding", _times("official", "mttp", "span_us"), 6, 10)],
    ),
    Row(
        "burst",
        "A burst of 13,500 spans to a collector: lost",
        [
            Part("mttp", "burst", _worst("lost", "mttp"), 0, at_least=False, unit=""),
            Part("SDK", "burst", _worst("lost", "SDK, OTLP"), at_least=False, unit=""),
        ],
    ),
    Row(
        "comparing",
        "Comparing 10,000 episodes of 8 steps with as many: a whole process",
        [
            Part(
                "JSON lines", "comparing", _worst("process_s", "mttp, lines"), 4, 3, at_least=False, unit="s"
            ),
            Part(
                "Parquet", "comparing", _worst("process_s", "mttp, Parquet"), 3, 1.5, at_least=False, unit="s"
            ),
            Part(
                "memory, JSON lines",
                "comparing",
                _worst("memory_mb", "mttp, lines"),
                1000,
                at_least=False,
                unit="MB",
            ),
            Part(
                "memory, Parquet",
                "comparing",
                _worst("memory_mb", "mttp, Parquet"),
                250,
                150,
                at_least=False,
                unit="MB",
            ),
        ],
    ),
    Row(
        "looking",
        "A report of 5,000 chats in one file",
        [
            Part("opens", "looking", _worst("opens_s", "report"), 3, 1.5, at_least=False, unit="s"),
            Part("opens an episode", "looking", _worst("episode_s", "report"), at_least=False, unit="s"),
            Part("size", "looking", _worst("megabytes", "report"), 30, 20, at_least=False, unit="MB"),
            Part("written in", "looking", _worst("process_s", "report"), at_least=False, unit="s"),
        ],
    ),
)
"""Rows in the order of the report."""


def judged(part: Part, rounds: Sequence[Mapping[str, Figures]], *, quick: bool = False) -> dict[str, Any]:
    """Return median, minimum and maximum of all rounds; a quick run has no verdict."""
    values = [part.value(found) for found in rounds]
    middle = median(values)
    return {
        "text": part.text,
        "unit": part.unit,
        "must": part.must,
        "good": part.good,
        "at_least": part.at_least,
        "median": middle,
        "lowest": min(values),
        "highest": max(values),
        "verdict": "" if quick else _verdict(part, middle),
    }


def _verdict(part: Part, value: float) -> str:
    def reaches(bound: float) -> bool:
        return value >= bound if part.at_least else value <= bound

    if part.must is None:
        return ""
    if part.good is not None and reaches(part.good):
        return "good"
    return "pass" if reaches(part.must) else "MISS"
