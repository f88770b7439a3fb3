"""One page for each kind of result, as each renderer shows it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages.results import RESULTS
from rich.console import Console
from shown import blocks, texts

import mttp
from mttp.cli.output import console
from mttp.pages import blocks as model
from mttp.pages import episode as episodes
from mttp.pages import markdown, terminal
from mttp.pages.blocks import Block, column, problems, table
from mttp.viewing.html import report_html

EXPECTED = Path(__file__).parent / "expected"
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
"""What depends on the version of Python: digests of code."""
VIEWER = Path(__file__).parents[2] / "viewer" / "src"


def on_terminal(page: Iterable[Block | None]) -> str:
    """A page on a terminal of 100 columns, without colours."""
    out = Console(width=100, color_system=None)
    with out.capture() as captured:
        out.print(terminal.render(page, everything=True))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_markdown(page: Iterable[Block | None]) -> str:
    return markdown.markdown(page, everything=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of results are made here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize(("suffix", "render"), [("txt", on_terminal), ("md", as_markdown)])
def test_each_result_has_its_page(name: str, suffix: str, render: Any):
    """
    Its text is that of `expected/`, which `UPDATE_EXPECTED=1` writes anew.
    """
    expected, text = EXPECTED / f"{name}.{suffix}", f"{DIGEST.sub('0' * 64, render(RESULTS[name]()))}\n"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(text, encoding="utf-8")

    assert expected.read_text(encoding="utf-8") == text


def as_html(page: Iterable[Block | None]) -> str:
    """A page of a report, without what is drawn."""
    blocks = [block for block in page if block is not None]
    plain = [block for block in blocks if "type" in block]
    sections = [
        {"id": "page", "title": "Page", "blocks": plain},
        *(each for each in blocks if "type" not in each),
    ]
    overview = {
        "title": "Page",
        "sources": [],
        "version": "",
        "made": 0,
        "sampling": "",
        "sections": sections,
        "runs": [],
        "picked": [],
        "of_all": "",
        "marks": [],
    }
    data = {"overview": {**overview, "columns": [], "views": []}, "rows": [], "chunks": [], "chunk_of": {}}
    return report_html("", json.dumps({**data, "texts": ""}))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "these tests need Chromium: apt-get install chromium"
    with playwright.sync_playwright() as opened:
        chromium = opened.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


SHOWN = """() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
    for (const each of document.querySelectorAll("svg, .chart")) each.replaceChildren();
    return document.querySelector(".sections").innerHTML;
}"""


@pytest.mark.browser
@pytest.mark.parametrize("name", RESULTS)
def test_each_result_has_its_html(browser: Any, tmp_path: Path, name: str):
    """
    As the front end makes it of the same blocks, with all that can be unfolded; charts are left out.
    """
    path = tmp_path / "page.html"
    path.write_text(as_html(RESULTS[name]()), encoding="utf-8")
    page = browser.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".sections", timeout=10_000)
    page.evaluate(SHOWN)
    page.wait_for_timeout(50)  # what is unfolded is made then
    shown = page.evaluate(SHOWN)
    page.close()
    html = DIGEST.sub("0" * 64, re.sub(r">(?=<(?!/?(?:b|i|small|span|code)\b))", ">\n", shown))
    expected = EXPECTED / f"{name}.html"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(f"{html}\n", encoding="utf-8")

    assert [] == wrong
    assert expected.read_text(encoding="utf-8") == f"{html}\n"


def blocks_of(page: Iterable[Block | None]) -> Iterator[Block]:
    """The blocks of a page and of its sections."""
    for block in page:
        if block is not None:
            yield from [block] if "type" in block else []
            yield from blocks_of(block.get("blocks", ()))


def test_reports_show_what_pages_are_made_of():
    """
    The viewer knows each type of block, and each kind of column, that a page has.
    """
    blocks = [block for page in RESULTS.values() for block in blocks_of(page())]
    kinds = {column["kind"] for block in blocks for column in block.get("columns", ())}
    source = (VIEWER / "blocks.ts").read_text()
    data = (VIEWER / "data.ts").read_text()
    known = re.search(r'kind: ("text"[^;]*);', data)

    assert {block["type"] for block in blocks} <= set(re.findall(r'case "(\w+)":$', source, re.MULTILINE))
    assert known is not None
    assert kinds <= set(re.findall(r'"(\w+)"', known[1]))


def test_reports_have_the_same_states_of_words():
    """
    A word has one colour and one mark, wherever it is shown.
    """
    source = (VIEWER / "blocks.ts").read_text()
    for words in (model._GOOD, model._BAD, model._WARN):
        assert f'"{words}"' in source


def test_renderers_know_the_same_blocks():
    """
    None is shown by one and not by the other.
    """
    assert terminal._BLOCKS.keys() == markdown._BLOCKS.keys()


@pytest.mark.parametrize(
    ("kind", "key", "value", "style"),
    [
        ("state", "status", "completed", "green"),
        ("state", "status", "error", "red"),
        ("state", "status", "unfinished", "yellow"),
        ("state", "status", "train", ""),
        ("number", "errored", 2, "red"),
        ("number", "errored", 0, ""),
        ("number", "pass", "2 of 3", ""),
    ],
)
def test_a_state_has_its_colour(kind: str, key: str, value: Any, style: str):
    """
    The same word has the same colour in each table, and the number of a failure has that of the failure.
    """
    cell = terminal._cell(value, column(key, kind=kind))

    assert [style] * bool(style) == [str(span.style) for span in cell.spans if span.style]


def test_long_tables_are_cut_and_say_so():
    """
    Fifty rows on a terminal, unless all are asked for; what is folded is a sentence.
    """
    rows = table("Rows", [column("a"), column("b")], [(n, n) for n in range(60)], "All of them.")
    folded = table("Folded", [column("a"), column("b")], [(1, 2)], is_folded=True)
    short = terminal.render([rows, folded])
    out = Console(width=100, color_system=None)
    with out.capture() as captured:
        out.print(short)

    assert "10 more, listed by --json. All of them.\n" in captured.get()
    assert captured.get().endswith("Folded: 1, listed by --all\n")
    assert "Folded: 1, listed by --all" in markdown.markdown([folded])
    assert ["59  59", "All of them."] == on_terminal([rows]).splitlines()[-2:]


def test_problems_are_counted_and_the_first_ones_listed():
    """
    The rest is a number.
    """
    block = problems([f"problem {n}" for n in range(9)])

    assert block is not None
    assert ("9 problems", 5, "4 more, listed by --json") == (
        block["title"],
        len(block["rows"]),
        block["note"],
    )
    assert problems([]) is None


@pytest.mark.parametrize(("columns", "widest"), [("50", 50), ("90", 90), ("0", 160), ("wide", 160)])
def test_columns_say_how_wide_a_pipe_is(monkeypatch: pytest.MonkeyPatch, columns: str, widest: int):
    """
    Where they are no number, there are 160.
    """
    monkeypatch.setenv("COLUMNS", columns)

    assert console().width == widest


def transcript(*steps: mttp.Step) -> list[Block]:
    """The blocks of an episode."""
    return [block for block in episodes.page(mttp.Episode(trace_id="ab" * 16, steps=steps)) if block]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think>b", [("reasoning", "a"), ("text", "b")]),
        ("a</think>b", [("reasoning", "a"), ("text", "b")]),
        ("<think>cut off", [("reasoning", "cut off")]),
        ("a <think>b</think> c", [("text", "a "), ("reasoning", "b"), ("text", " c")]),
        ("<think></think>", [("text", "<think></think>")]),
        ("", [("text", "(empty)")]),
        (" ", [("text", " ")]),
    ],
)
def test_thoughts_of_a_model_are_apart(text: str, expected: list[tuple[str, str]]):
    """
    In what it wrote, not in what it was given; no text is lost.
    """
    answer = {"role": "assistant", "content": text}
    shown, given = blocks(
        [*transcript(mttp.Step(action=answer)), *transcript(mttp.Step(observation=text))], "message"
    )

    assert expected == [(part["type"], part["text"]) for part in shown["parts"]]
    assert [("text", text or "(empty)")] == [(part["type"], part["text"]) for part in given["parts"]]


def test_a_tool_s_result_stands_at_its_call():
    """
    Once, whether the call or the next message has it; another text of that message is kept.
    """
    ask = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{}"}}],
    }
    call = mttp.model.Call(operation="execute_tool", name="add", arguments={}, result={"sum": 6})
    results = []
    for calls, told in (((), "6"), ((call,), '{"sum": 6}'), ((call,), "six")):
        told_message = {"role": "tool", "tool_call_id": "c", "content": told}
        page = transcript(
            mttp.Step(action=ask, calls=calls),
            mttp.Step(index=1, observation=[ask, told_message], action="done"),
        )
        results.append((texts(page, "result"), texts(page, "tool"), len(blocks(page, "call"))))

    assert [(["6"], [], 1), (['{"sum": 6}'], [], 1), (['{"sum": 6}'], ["six"], 1)] == results


def test_a_model_s_call_is_the_header_of_its_answer():
    """
    One that failed, or says something else, is a call of its own.
    """
    asked, said = [{"role": "user", "content": "a"}], [{"role": "assistant", "content": "b"}]
    call = mttp.model.Call(operation="chat", name="tiny", output_tokens=4, arguments=asked, result=said)
    failed = replace(call, result=None, error_type="TimeoutError", error_message="late")
    page = transcript(mttp.Step(observation=asked, action=said, calls=(failed, call)))
    (answer,) = (block for block in blocks(page, "message") if block["role"] == "assistant")
    (shown,) = blocks(page, "call")

    assert ("tiny, 4 tokens out", "chat tiny") == (answer["words"], shown["title"])
    assert "error  TimeoutError: late" == shown["error"]


def test_coordinates_have_curves():
    """
    The first 32 of vectors, also of those in a mapping, and of continuous actions; the rest is counted.
    """
    steps = [
        mttp.Step(index=place, observation={"a": np.arange(40.0), "b": np.zeros(1)}, action=np.ones(2))
        for place in range(2)
    ]
    page = transcript(*steps)
    (curves,) = blocks(page, "curves")
    names = [curve["name"] for curve in curves["items"]]

    assert ("observation a 0", "observation a 31", "action 0", "action 1") == (
        names[0],
        names[31],
        *names[32:],
    )
    assert "9 more coordinates are not drawn." in [note["text"] for note in blocks(page, "note")]
