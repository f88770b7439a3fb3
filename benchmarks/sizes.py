"""
Measures the bytes of each part of a recording, and writes the table that `mttp size` computes with.

    python benchmarks/sizes.py             measure, print how well the table gives back what was measured
    python benchmarks/sizes.py --write     also write the table, what was measured, and docs/sizing.md

Recordings that differ in one or two things are written in each form. The bytes of one step, token, character
and so on are fitted to all sizes: they have the least squares of the relative errors, and none is below zero.
Ids are drawn from 150,000, log probabilities are normal, and texts are of 2,000 words; less random data
compresses better.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import mttp
from mttp.study.sizing.quantities import Quantities
from mttp.study.sizing.workload import Workload
from mttp.testing import OtlpReceiver

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "src" / "mttp" / "study" / "sizing" / "measured.py"
MEASURED = ROOT / "benchmarks" / "sizes.json"
PAGE = ROOT / "docs" / "sizing.md"
WEIGHTS = {"correct": 0.7, "format": 0.2, "brevity": 0.1}
FORMS = {
    "file": "jsonl",
    "gzip": "jsonl.gz",
    "zstd": "jsonl.zst",
    "parquet": "parquet",
    "otlp": "http",
    "otlp_gzip": "http?compression=gzip",
}


@dataclass(frozen=True)
class Design:
    """One recording to measure."""

    workload: Workload
    episodes: int = 96
    each: str = "all"
    """What a segment has: `step`, `episode`, or all that is recorded."""


def designs() -> Iterator[Design]:
    """Yield the recordings, from the chat of the benchmarks."""
    chat, plain = Workload(), Workload(tokens=0, characters=0)
    slow = [replace(plain, tokens=1024), *(replace(plain, characters=count) for count in (300, 6000))]
    for workload in (
        chat,
        plain,
        replace(plain, steps=32),
        replace(plain, tokens=256, logprobs=False),
        replace(plain, tokens=64),
        *slow,
        replace(plain, calls=1),
        replace(chat, calls=0.5, steps=16),
        replace(chat, tokens=512, characters=4000, steps=4),
        replace(chat, content=False, token_ids=False),
        replace(chat, content=False, token_ids=False, logprobs=False),
        replace(chat, content=False, tokens=64),
        replace(chat, content=False, token_ids=False, calls=1),
        replace(plain, content=False, characters=1300),
    ):
        count = 32 if workload.tokens > 256 or workload.steps > 8 else 96
        yield Design(workload, count)
        if workload in (chat, plain) or not workload.content or workload.calls or workload in slow:
            yield Design(workload, count // 2, "step")
        if workload in (chat, plain) or workload.calls:
            yield Design(workload, count // 2, "episode")
    yield Design(plain, 1)


class Texts:
    """Random texts of words."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        sizes = rng.integers(2, 11, 2_000)
        self._words = ["".join(map(chr, rng.integers(97, 123, size))) for size in sizes]

    def __call__(self, length: float) -> str:
        """Return a text with so many characters."""
        count = int(length)
        chosen = self._rng.integers(0, len(self._words), count // 3 + 1)
        return " ".join(self._words[number] for number in chosen)[:count]


class Player:
    """Records steps and episodes of a workload."""

    def __init__(self, workload: Workload, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._text, self._workload, self._calls = Texts(self._rng), workload, 0.0

    def start(self, session: mttp.Session, number: int) -> mttp.recording.OpenEpisode:
        """Start an episode."""
        about: Any = {"policy": "policy-7b", "policy_version": str(number // 1000), "seed": number}
        return session.episode(env="tool-chat", task=f"chat/{number}", group=f"g{number // 8}", **about)

    def step(self, episode: mttp.recording.OpenEpisode) -> None:
        """Record a step."""
        workload, text, rng = self._workload, self._text, self._rng
        with episode.step() as step:
            if part := int(workload.characters * 10 / 26):
                users = {"role": "user", "content": text(part)}
                step.observation([{"role": "tool", "content": text(part)}, users])
                step.action(text(workload.characters - 2 * part))
            if count := int(workload.tokens):
                logprobs = rng.normal(-1, 1, count).astype(np.float32) if workload.logprobs else None
                step.tokens(ids=rng.integers(0, 150_000, count), logprobs=logprobs)
            self._calls += workload.calls
            while self._calls >= 1:
                self._calls -= 1
                with step.tool_call("search", arguments={"query": text(40)}, id="call-1") as call:
                    call.result(text(200))

    def end(self, episode: mttp.recording.OpenEpisode) -> None:
        """Reward and end an episode."""
        scores = dict(zip(WEIGHTS, self._rng.random(3).tolist(), strict=True))
        total = sum(scores[name] * weight for name, weight in WEIGHTS.items())
        episode.reward(total, components=scores, weights=WEIGHTS)
        episode.end(terminated=True, outcome="success")


def options(workload: Workload) -> dict[str, Any]:
    """Return the arguments of `mttp.configure` for content and token ids."""
    return {"content": workload.content, "token_ids": workload.token_ids}


def settle(session: mttp.Session) -> None:
    """Wait until the run's start is written, and again with what was detected about the machine."""
    session.flush()
    detection = session._recorder._detection
    while detection is not None and not detection.done:
        time.sleep(0.01)
    session.flush()


def play(session: mttp.Session, design: Design) -> None:
    """Record a design's episodes, and flush as it says."""
    player = Player(design.workload)
    settle(session)
    for number in range(design.episodes):
        with player.start(session, number) as episode:
            for _ in range(int(design.workload.steps)):
                player.step(episode)
                if design.each == "step":
                    session.flush()
            player.end(episode)
        if design.each == "episode":
            session.flush()


def measured(design: Design, form: str, folder: Path) -> tuple[float, Quantities]:
    """Return the bytes of a design in a form, and the parts that it has."""
    kind = FORMS[form]
    if kind.startswith("http"):
        with OtlpReceiver() as receiver:
            address = receiver.http_address + kind.removeprefix("http")
            with mttp.configure(address, run="sizes", **options(design.workload)) as session:
                play(session, design)
        size = float(sum(request.wire_bytes for request in receiver.requests))
        markers = sum(record.name == "episode.start" for record in receiver.records())
        return size, parts(design, len(receiver.requests), markers)
    path = folder / f"a.{'jsonl' if kind == 'parquet' else kind}"
    path.unlink(missing_ok=True)
    with mttp.configure(f"file://{path}", run="sizes", **options(design.workload)) as session:
        play(session, design)
    markers = markers_in(path)
    if kind == "parquet":
        converted = path.with_suffix(".parquet")
        command = [sys.executable, "-m", "mttp", "convert", str(path), str(converted), "--overwrite"]
        subprocess.run(command, check=True, capture_output=True)
        return float(converted.stat().st_size), parts(design, 0, markers)
    segments = {"step": design.episodes * design.workload.steps, "episode": design.episodes}
    return float(path.stat().st_size), parts(design, segments.get(design.each, 1) + 3, markers)


def markers_in(path: Path) -> int:
    """Return the number of start markers in a file."""
    return sum(record.name == "episode.start" for record in mttp.scan(path))


def parts(design: Design, segments: float, markers: int) -> Quantities:
    """Return the parts of a design with so many segments and markers."""
    whole = design.workload.of_episode()
    total = {field.name: getattr(whole, field.name) * design.episodes for field in fields(whole)}
    total |= {"processes": 1, "markers": markers}
    return design.workload.with_segments(Quantities(**total), segments)


# The table.


def fitted(rows: list[tuple[float, Quantities]]) -> Quantities:
    """Return the bytes of one of each part that give back the sizes best, relative to each."""
    from scipy.optimize import nnls

    names = [field.name for field in fields(Quantities)]
    sizes = np.array([size for size, _ in rows])
    counts = np.array([[getattr(found, name) for name in names] for _, found in rows])
    scale = np.maximum(counts.max(axis=0), 1.0)
    found, _ = nnls(counts / scale / sizes[:, None], np.ones(len(rows)))
    return Quantities(**{name: round(float(one), 3) for name, one in zip(names, found / scale, strict=True)})


MEMORY = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
import numpy, usage
def resident(process):
    return usage._pages(process) * os.sysconf("SC_PAGE_SIZE")
before = resident(os.getpid())
import mttp
most, end = 0, time.monotonic() + 4
with mttp.configure("file://memory.jsonl"):
    while time.monotonic() < end:
        with mttp.episode(env="toy") as episode:
            for _ in range(8):
                with episode.step() as step:
                    step.action("x" * 300)
                    step.tokens(ids=numpy.arange(256), logprobs=numpy.zeros(256, numpy.float32))
            episode.reward(1.0, components={"correct": 1.0})
        time.sleep(0.005)
        most = max([most, *map(resident, usage._descendants(os.getpid()))])
    print(json.dumps({"process": resident(os.getpid()) - before, "helper": most}))
"""
"""Records for some seconds, and prints what that adds to memory, and the memory of the encoding process."""


def memory() -> dict[str, float]:
    """Return the memory in bytes that recording adds to a process, and that of its encoding process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", MEMORY, str(ROOT / "benchmarks")]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(found: Mapping[str, Quantities], memory: Mapping[str, float], worst: Mapping[str, float]) -> str:
    """Return the module of the package that has the figures."""
    lines = [
        '"""Measured sizes, which `python benchmarks/sizes.py --write` measures again and writes here."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "from typing import Final",
        "",
        "from mttp.study.sizing.quantities import Quantities",
        "",
        '__all__ = ["BYTES", "HELPER_BYTES", "PROCESS_BYTES", "TOLERANCE"]',
        "",
        "BYTES: Final[Mapping[str, Quantities]] = {",
    ]
    for form, one in found.items():
        lines.append(f'    "{form}": Quantities(')
        lines += [f"        {name}={value}," for name, value in asdict(one).items()]
        lines.append("    ),")
    lines += [
        "}",
        '"""Bytes of one of each part, by form: files, Parquet, and bodies of OTLP requests."""',
        "TOLERANCE: Final[Mapping[str, float]] = {",
        *(f'    "{form}": {error:.2f},' for form, error in worst.items()),
        "}",
        '"""The largest relative error with which they give back what was measured, by form."""',
        f"PROCESS_BYTES: Final = {round(memory['process'], -5):.0f}",
        '"""Memory that recording adds to a process that has numpy."""',
        f"HELPER_BYTES: Final = {round(memory['helper'], -5):.0f}",
        '"""Memory of its encoding process."""',
        "",
    ]
    return "\n".join(lines)


COLUMNS = {
    "file": "JSON lines",
    "gzip": "gzip",
    "zstd": "zstd",
    "parquet": "Parquet",
    "otlp": "request",
    "otlp_gzip": "request, gzip",
}
PARTS = {
    "segments": "a segment: one write, or one request",
    "episodes": "an episode: root and reward",
    "markers": "a start marker",
    "steps": "a step",
    "token_blocks": "a step's token block, without its elements",
    "token_ids": "a token id",
    "logprobs": "a log probability",
    "contents": "a step's observation and action, without their characters",
    "characters": "a character",
    "calls": "a tool call",
    "cold_episodes": "in addition: the first episode of a segment",
    "cold_token_blocks": "in addition: the first token block of a segment",
    "cold_characters": "in addition: a character of the first content of a segment",
    "cold_calls": "in addition: the first call of a segment",
    "processes": "a process: spans of the run",
}


def documented(found: Mapping[str, Quantities], worst: Mapping[str, float]) -> str:
    """Return the tables of the page: the bytes of each part, and the errors."""
    lines = [f"| bytes of | {' | '.join(COLUMNS.values())} |", "| --- |" + " --- |" * len(COLUMNS)]
    for name, text in PARTS.items():
        values = [getattr(found[form], name) for form in COLUMNS]
        cells = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    errors = [f"{worst[form]:.0%}" for form in COLUMNS]
    return "\n".join([*lines, f"| largest relative error | {' | '.join(errors)} |"])


def write_page(tables: str) -> None:
    """Write the tables into the page, and what its commands print."""
    from report import written

    def run(match: re.Match[str]) -> str:
        command = [sys.executable, "-m", "mttp", "size", *match[1].split()]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return f"```console\n$ mttp size {match[1]}\n{printed}```"

    written(PAGE, tables)
    blocks = re.compile(r"^```console\n\$ mttp size (.*)\n(?:.*\n)*?```$", re.MULTILINE)
    PAGE.write_text(blocks.sub(run, PAGE.read_text()))


def main() -> None:
    """Measure, print the errors, and write the table if asked."""
    parser = argparse.ArgumentParser(description="Measure the bytes of each part of a recording.")
    parser.add_argument("--write", action="store_true", help="write the table, and what was measured")
    asked = parser.parse_args()
    rows: dict[str, list[tuple[float, Quantities]]] = {form: [] for form in FORMS}
    kept: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for design in designs():
            for form in FORMS:
                if form == "parquet" and design.each != "all":
                    continue
                rows[form].append(measured(design, form, Path(folder)))
                size, found = rows[form][-1]
                about = {"episodes": design.episodes, "each": design.each, "form": form, "bytes": size}
                kept.append(about | {"workload": asdict(design.workload), "parts": asdict(found)})
            print(f"{len(kept):4d}", design, file=sys.stderr, flush=True)
    constants = {form: fitted(found) for form, found in rows.items()}
    worst: dict[str, float] = {}
    for form, found in rows.items():
        errors = [abs(constants[form].dot(counts) / size - 1) for size, counts in found]
        worst[form] = float(np.ceil(100 * max(errors) + 0.5) / 100)
        print(f"{form:10} median error {np.median(errors):6.2%}, worst {max(errors):6.2%}")
    if asked.write:
        MEASURED.write_text("[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]\n")
        TABLE.write_text(table(constants, memory(), worst))
        write_page(documented(constants, worst))


if __name__ == "__main__":
    main()
