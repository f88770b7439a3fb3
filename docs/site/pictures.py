"""
The pictures of the pages: `mttp show` in a terminal, an episode in Phoenix, a report in a browser, and
plots.

    python docs/site/pictures.py        browsers need `chromium` on the path, Phoenix also `phoenix`
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

import mttp

IMAGES = Path(__file__).parents[1] / "images"
PORT = 6006
WIDTH = 96
WORDS = ["First", ",", "multiply", "three", "by", "minus", "three", ".", "The", "answer", "is", "-9", "five"]
RIGHT = [*range(12)]
WRONG = [[*range(11), 12], [0, 1, 2, 3, 4, 3, 7, 8, 9, 10, 12], [8, 9, 10, 12, 7]]
"""Answers as places of their words."""


def record(path: Path) -> str:
    """Record two attempts at a task; the trace id of the second."""
    random = np.random.default_rng(7)
    with mttp.configure(f"file://{path}", run="maths-tools", seed=7, config={"lr": 1e-6}):
        for answer in ("-7", "-9"):
            with mttp.episode(env="maths-tools", task="train/17", policy="tiny@12", group="p17") as episode:
                question = {"role": "user", "content": "What is 3 * (4 - 7)?"}
                with episode.step() as step:
                    step.observation([question])
                    with step.model_call("tiny", temperature=1.0) as call:
                        time.sleep(0.3)
                        call.response(model="tiny", input_tokens=21, output_tokens=9)
                    step.action({"role": "assistant", "content": "<calc>3 * (4 - 7)</calc>"})
                    with step.tool_call("calc", arguments={"expression": "3 * (4 - 7)"}) as call:
                        time.sleep(0.03)
                        call.result("-9")
                    step.tokens(random.integers(0, 32_000, 9), logprobs=random.normal(-0.4, 0.3, 9))
                with episode.step() as step:
                    step.observation([{"role": "tool", "content": "-9"}])
                    step.action({"role": "assistant", "content": f"<answer>{answer}</answer>"})
                    step.tokens(random.integers(0, 32_000, 5), logprobs=random.normal(-0.2, 0.1, 5))
                correct = float(answer == "-9")
                episode.reward(
                    components={"correct": correct, "format": 1.0, "length": 0.9},
                    weights={"correct": 0.8, "format": 0.1, "length": 0.1},
                    verdict="pass" if correct else "fail",
                    grader="maths-tools 1.2.0",
                    explanation=f"the answer is {answer}, expected -9",
                )
                episode.end(terminated=True, outcome="success" if correct else "failure")
    return mttp.read(path).episodes[-1].trace_id


def terminal(path: Path, trace_id: str) -> None:
    """Write what `mttp show` prints as an SVG."""
    from rich.ansi import AnsiDecoder
    from rich.console import Console

    command = [sys.executable, "-m", "mttp", "show", str(path), "--episode", trace_id[:8]]
    env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TTY_COMPATIBLE": "1"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123 - one script
    for line in AnsiDecoder().decode(printed):
        console.print(line)
    drawn = console.export_svg(title=f"mttp show runs/a.jsonl --episode {trace_id[:8]}")
    # The fonts would be fetched from another host.
    (IMAGES / "show.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def phoenix(path: Path, trace_id: str, folder: Path) -> None:
    """Send the recording to a Phoenix of its own, and photograph the episode."""
    env = {
        **os.environ,
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_PORT": str(PORT),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    server = subprocess.Popen(
        ["phoenix", "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://localhost:{PORT}"
        wait(f"{address}/healthz")
        subprocess.run([sys.executable, "-m", "mttp", "push", path, "--to", address, "--content"], check=True)
        time.sleep(3)
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        size = ["--window-size=1400,820", "--virtual-time-budget=20000"]
        picture = f"--screenshot={IMAGES / 'phoenix.png'}"
        subprocess.run(
            [*browser, *size, picture, f"{address}/redirects/traces/{trace_id}"], check=True, timeout=120
        )
    finally:
        server.terminate()
        server.wait()


def train(path: Path, shift: float) -> None:
    """Record a toy run of groups of four chats, whose share of right answers grows."""
    random = np.random.default_rng(5)
    with mttp.configure(f"file://{path}", run=path.stem, seed=5, config={"lr": 1e-6 * (1 + shift)}):
        for update in range(40):
            task, split = f"train/{update % 12}", "easy" if update % 3 else "hard"
            with mttp.group(id=f"g{update}", task=task, normalization="mean_std") as group:
                for _ in range(4):
                    task, split = f"train/{update % 12}", "easy" if update % 3 else "hard"
                    with mttp.episode(
                        env="maths", task=task, split=split, policy=f"tiny@{update}"
                    ) as episode:
                        right = float(random.random() < 0.25 + 0.012 * update + shift)
                        ids = RIGHT if right else WRONG[random.integers(len(WRONG))]
                        with episode.step() as step:
                            step.observation([{"role": "user", "content": "What is 3 * (4 - 7)?"}])
                            step.action({"role": "assistant", "content": " ".join(WORDS[id] for id in ids)})
                            logprobs = -random.exponential(0.5, len(ids))
                            step.tokens(
                                ids,
                                logprobs=logprobs,
                                ref_logprobs=logprobs + random.normal(0, 0.2, len(ids)),
                                entropies=random.random(len(ids)),
                            )
                        neat = float(random.random() < 0.7)
                        episode.reward(
                            components={"correct": right, "format": neat, "length": -0.1},
                            weights={"correct": 0.8, "format": 0.2, "length": 1.0},
                            grader="maths 1.2.0",
                            explanation="equal to -9" if right else "expected -9",
                        )
                        outcome = "success" if right else "failure"
                        episode.end(outcome=outcome, stop_reason="stop", terminated=True)
                    group.add(episode)
            mttp.update(index=update, loss=1 / (1 + update), kl=0.002 * update, entropy=2 - 0.02 * update)


def seeds(folder: Path) -> None:
    """Record six seeds of two settings of a toy control task, whose returns grow at two rates."""
    for rate in (3e-4, 1e-3):
        for seed in range(6):
            random = np.random.default_rng(seed)
            path = folder / "seeds" / f"{rate:g}-{seed}.jsonl"
            with mttp.configure(f"file://{path}", run=f"ppo lr {rate:g}", seed=seed, config={"lr": rate}):
                for number in range(150):
                    mean = 200 / (1 + np.exp(-(number - 60 - 5 * seed) * rate * 60)) + 20
                    with mttp.episode(env="CartPole-v1") as episode:
                        for _ in range(max(1, int(mean + random.normal(0, 25)) // 20)):
                            with episode.step() as step:
                                step.reward(20.0)
                        episode.end(terminated=True)


def report(folder: Path) -> None:
    """Photograph the overview, an episode, a group, and the curves of seeds in reports."""
    from playwright.sync_api import sync_playwright

    from mttp.viewing import report as make

    base, new = folder / "base.jsonl", folder / "new.jsonl"
    train(base, 0.0)
    train(new, 0.2)
    os.chdir(folder)
    page = make(new.name, baseline=str(base), pieces=lambda ids: [f"{WORDS[id]} " for id in ids])
    address = page.write(folder / "report.html").as_uri()
    episode = mttp.read(new).episodes[-1].trace_id
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        view = browser.new_page(viewport={"width": 1280, "height": 860})
        view.goto(f"{address}#/overview/returns")
        view.wait_for_timeout(1000)
        view.screenshot(path=IMAGES / "report.png")
        view.goto(f"{address}#/episode/{episode}")
        view.click("text=Tokens: ")
        view.hover(".token >> nth=3")
        view.wait_for_timeout(500)
        view.screenshot(path=IMAGES / "episode.png")
        view.set_viewport_size({"width": 1280, "height": 620})
        mixed = """
            SELECT arg_min(trace_id, reward) AS id FROM episodes
            GROUP BY "group" HAVING avg(reward) BETWEEN 0.4 AND 0.6 ORDER BY min(start_time)
        """
        member = mttp.read(new).tables.sql(mixed).rows()[0]["id"]
        view.goto(f"{address}#/group/{member}")
        view.wait_for_timeout(500)
        view.screenshot(path=IMAGES / "group.png")
        seeds(folder)
        view.set_viewport_size({"width": 1280, "height": 1180})
        view.goto(make("seeds").write(folder / "seeds.html").as_uri())
        view.wait_for_timeout(1000)
        view.screenshot(path=IMAGES / "seeds.png")
        browser.close()


def plots(folder: Path) -> None:
    """Draw a figure of several plots."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    recording = mttp.read(folder / "new.jsonl")
    figure, ((first, second), (third, fourth)) = pyplot.subplots(2, 2, figsize=(12, 7), layout="constrained")
    recording.plot.returns(ax=first)
    recording.plot.components(ax=second)
    recording.plot.groups(ax=third)
    recording.plot.kl(ax=fourth)
    figure.savefig(IMAGES / "plots.png", dpi=90)


def wait(url: str, seconds: float = 90) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(f"{url} does not answer")


def main() -> None:
    """Make all that the programs at hand allow."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        trace_id = record(path)
        terminal(path, trace_id)
        if shutil.which("chromium"):
            report(Path(folder))
            plots(Path(folder))
        else:
            print("left out: report.png and episode.png need `chromium`")
        if shutil.which("phoenix") and shutil.which("chromium"):
            phoenix(path, trace_id, Path(folder) / "phoenix")
        else:
            print("left out: phoenix.png needs `phoenix` (pip install arize-phoenix) and `chromium`")


if __name__ == "__main__":
    main()
