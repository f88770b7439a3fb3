"""The documentation's examples run."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from stores import Answer, Asked, serving

import mttp
from mttp.testing.receiver import OtlpReceiver

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PARTS = re.compile(BLOCK.pattern + r"|^<!-- needs: (\w+) -->$|^(#+ )", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """The page's fenced blocks, as (language, text)."""
    return BLOCK.findall(page.read_text())


def runnable(page: Path) -> list[tuple[str, str]]:
    """The page's fenced blocks without those of sections that need what is not installed."""
    found, is_lacking = [], False
    for language, text, needed, heading in PARTS.findall(page.read_text()):
        if heading:
            is_lacking = False
        elif needed:
            is_lacking = is_lacking or find_spec(needed) is None
        elif not is_lacking:
            found.append((language, text))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each page's Python blocks run one after the other; a `text` block after one is exactly what it prints.

    A `py` block is a program of its own. A section that `needs` what is not installed is left out.
    """
    monkeypatch.setenv("COLUMNS", "160")  # which readline exports once it is loaded
    namespace: dict[str, object] = {"__name__": "page"}
    printed = None
    for language, text in runnable(page):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif language == "py":
            program = [sys.executable, "-c", text]
            printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
        elif language == "text" and printed:
            assert text == printed
            printed = None


def test_a_section_is_left_out_without_what_it_needs(tmp_path: Path) -> None:
    """
    Sections before and after it run.
    """
    sections = ["# A\n\n{}\n", "## B\n\n<!-- needs: no_such_library -->\n\n{}\n", "## C\n\n{}\n"]
    page = tmp_path / "page.md"
    code = (f"```python\n{number}\n```" for number in range(len(sections)))
    page.write_text("\n".join(map(str.format, sections, code)))

    assert [("python", "0\n"), ("python", "2\n")] == runnable(page)


def test_the_readme_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In a directory with `examples/`, every Python block and every command runs, in the order of the page.

    `make` only says what it would do; what is sent to localhost:4318 is sent to a receiver of ours.
    """
    Path("examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    namespace: dict[str, object] = {"__name__": "page"}
    ran = []
    with OtlpReceiver() as receiver:
        for language, text in blocks(ROOT / "README.md"):
            if language == "python":
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(text, "README.md", "exec"), namespace)
            for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE) if language == "console" else ():
                pasted = command.replace("http://localhost:4318", receiver.http_address)
                pasted = re.sub(r"^make ", f"make --dry-run --directory {ROOT} ", pasted)
                done = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, check=False)
                ran.append(command.split()[:2])

                assert (0, command) == (done.returncode, command), done.stdout + done.stderr
                assert "Traceback" not in done.stderr, done.stderr
        assert list(receiver.records())

    assert ["make", "demo"] == ran[0]
    assert ["mttp", "push"] == ran[-1]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_say_what_they_take(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Each example runs as a script and explains itself.
    """
    monkeypatch.setattr(sys, "argv", [str(example), "--help"])
    monkeypatch.syspath_prepend(str(example.parent))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(example), run_name="__main__")

    printed, complaints = capsys.readouterr()
    assert (0, "") == (ended.value.code, complaints)
    assert "--out" in printed


def shown(example: str) -> list[str]:
    """What the pages say that an example prints, each time."""
    command = re.compile(rf"^\$ python examples/{example}$\n((?:[^$\n].*\n)*)", re.MULTILINE)
    texts = (text for page in PAGES for language, text in blocks(page) if language == "console")
    return [printed for text in texts for printed in command.findall(text)]


@pytest.mark.parametrize("example", ["own_grpo.py", "grpo.py", "graded.py", "gsm8k.py", "hackable.py"])
def test_a_page_shows_what_an_example_prints(example: str) -> None:
    """
    Those that need no more than numpy print the same everywhere, and what they record has no findings.
    """
    command = [sys.executable, str(ROOT / "examples" / example)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    findings = mttp.check("runs")

    assert [done.stdout] == shown(example)
    assert ([], []) == (findings.all, findings.problems)
    assert findings.spans


def test_learning_rates_are_compared_over_seeds() -> None:
    """
    Two seeds a side have an interval, one has none.
    """
    command = [sys.executable, str(ROOT / "examples" / "seeds.py"), "--seeds", "2", "--episodes", "66"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    assert 2 == done.stdout.count("Welch t over 2 and 2 runs")
    assert 1 == done.stdout.count("inconclusive; no interval: 1 and 1 runs\none run alone is no evidence")
    assert 4 == len(mttp.read("runs/seeds").runs)


def test_the_demo_agent_learns_and_is_recorded() -> None:
    """
    The demo's agent gets several times better, and each of its episodes is in the file.
    """
    command = [sys.executable, "-m", "mttp", "demo", "--episodes", "150", "--out", "pole.jsonl"]
    subprocess.run(command, check=True, capture_output=True, text=True)

    recording = mttp.read("pole.jsonl")
    returns = [episode.return_ for episode in recording.episodes]
    assert (150, []) == (len(returns), recording.problems)
    assert sum(returns[-30:]) > 2 * sum(returns[:30])
    assert all(episode.return_ == episode.length == len(episode.steps) for episode in recording.episodes)


def test_the_demo_sends_episodes_and_metrics_while_it_runs() -> None:
    """
    What dashboards show of a live run: its spans, and metrics that only training has.
    """
    asked: list[Asked] = []

    def answer(request: Asked) -> Answer:
        asked.append(request)
        return 200, "application/x-protobuf", b""

    with serving(answer) as place:
        command = [
            sys.executable,
            "-m",
            "mttp",
            "demo",
            "--episodes",
            "30",
            "--out",
            "pole.jsonl",
            "--to",
            f"http://{place}",
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)

    bodies = [gzip.decompress(one.body) if one.body[:2] == b"\x1f\x8b" else one.body for one in asked]
    assert {"/v1/traces", "/v1/metrics"} == {one.path for one in asked}
    assert any(b"mttp.steps.duration" in body for body in bodies)
    assert any(b"mttp.episode.return" in body for body in bodies)


def test_what_the_specs_pay_is_recorded() -> None:
    """
    The example of reward specs runs, and its rewards are in the file with their grades and documents.
    """
    command = [sys.executable, str(ROOT / "examples" / "graded.py"), "--out", "graded.jsonl"]
    subprocess.run(command, check=True, capture_output=True, text=True)

    recording = mttp.read("graded.jsonl")
    assert [1.0, 0.5, 0.7, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0] == [one.return_ for one in recording]
    assert {"gsm8k", "spreadsheet", "taste"} == {one.reward.spec.name for one in recording if one.reward.spec}
    assert (3, []) == (len(recording.runs[0].spec_documents), recording.problems)
    assert [] == list(mttp.check("graded.jsonl"))


def test_every_page_is_in_the_site_and_in_the_readme() -> None:
    """
    A page that nothing leads to is not found; the start page has the same map.
    """
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "docs/site/mkdocs.yml").read_text(), re.MULTILINE))
    linked = set(re.findall(r"\(docs/([\w/-]+\.md)\)", (ROOT / "README.md").read_text()))

    start = set(re.findall(r"\(([\w/-]+\.md)\)", (ROOT / "docs/index.md").read_text()))

    assert pages == listed == linked
    assert pages - {"index.md"} == start


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """
    Each file that is linked is there, and each heading.
    """
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in _anchors(found)):
            broken.append(target)

    assert [] == broken


def _anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub and the site spell them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_page_of_faults_names_tests_that_exist() -> None:
    """
    Each test that the page names is defined in the file that it names.
    """
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/faults.md").read_text())
    missing = [
        (file, name)
        for file, name in named
        if not (ROOT / file).exists() or (name and f"def {name}(" not in (ROOT / file).read_text())
    ]

    assert len(named) > 40
    assert [] == missing


def test_the_readme_has_figures_of_the_benchmarks() -> None:
    """
    The figures in the README's table are medians of the page that the benchmarks write.
    """
    table = (ROOT / "README.md").read_text().partition("## What it costs")[2].partition("##")[0]
    figures = set(re.findall(r"[\d.,]+(?=x (?:less|faster))|(?<=loses )[\d,]+", table))
    page = (ROOT / "docs/benchmarks.md").read_text()

    assert len(figures) == 3
    assert [] == [
        figure for figure in figures if f"| {figure}x |" not in page and f"| {figure} |" not in page
    ]
