"""
What a report takes: a whole process that writes it, its size, and the time until a browser shows it.

The recording has 5,000 of the chats of `chat.py`, as OTLP JSON lines in the page cache.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from cases import Case, Figures
from chat import POOL, chats
from recorders import LOCAL, own

SECONDS, QUICK_SECONDS, ROUNDS = 5_000.0, 100.0, 3
"""Number of episodes."""


def prepare(quick: bool) -> None:
    """Record the chats."""
    recorder = own()
    pool = chats(POOL, lists=False)
    for number in range(int(QUICK_SECONDS if quick else SECONDS)):
        for _ in recorder.play(pool[number % len(pool)]):
            pass
    recorder.close()


def _written(_: float) -> Figures:
    from mttp.viewing import report

    found = report(Path("..") / f"{LOCAL}.jsonl")
    path = found.write("report.html")
    return {"rows": found.rows, "pages": found.pages, "megabytes": path.stat().st_size / 1e6}


def _opened(_: Figures) -> Figures:
    """Seconds until the overview is there, and until the first episode of the list is."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        start = time.perf_counter()
        page.goto(f"{Path('report.html').resolve().as_uri()}#/overview")
        page.wait_for_selector("main h1")
        opened = time.perf_counter() - start
        start = time.perf_counter()
        page.goto(f"{Path('report.html').resolve().as_uri()}#/episodes?sort=start&order=ascending")
        page.locator("tr[data-episode]").first.click()
        page.wait_for_selector(".episode h1")
        clicked = time.perf_counter() - start
        browser.close()
    return {"opens_s": opened, "episode_s": clicked}


CASES = {"report": Case(_written, check=_opened)}
