"""`mttp tail` and `mttp view` as programs: they follow, and end by Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from polling import SECONDS
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments], prog_name="mttp")
    return result.exit_code, result.output


def record(path: str, values: list[float], **facts: object) -> None:
    with mttp.configure(f"file://{path}"):
        for value in values:
            with mttp.episode(env="e", task="t", **facts) as episode:
                with episode.step():
                    pass
                episode.reward(value, components={"right": value}, grader="exact")
                episode.end(outcome="success" if value > 0.5 else "failure")


def test_a_line_for_each_episode_with_running_means() -> None:
    """
    The mean is that of the last episodes up to the line.
    """
    record("run.jsonl", [1.0, 0.0, 1.0, 1.0])
    code, output = run("tail", "run.jsonl", "--no-follow", "--window", "2", "--lines", "3")

    assert 0 == code
    assert [
        "return 0, failure  mean 0.5, 50% success",
        "return 1, success  mean 0.5, 50% success",
        "return 1, success  mean 1, 100% success",
    ] == [re.sub(r"^.*1 step, ", "", line) for line in output.splitlines()]


def test_what_went_wrong_is_in_words() -> None:
    """
    Errors of graders and of episodes; in JSON by their statuses.
    """
    record("run.jsonl", [float("nan")])
    with pytest.raises(RuntimeError), mttp.configure("file://run.jsonl"), mttp.episode(env="e"):
        raise RuntimeError("boom")
    _, output = run("tail", "run.jsonl", "--no-follow")
    _, lines = run("tail", "run.jsonl", "--no-follow", "--json")
    documents = [json.loads(line) for line in lines.splitlines()]

    assert ["reward error", "error"] == [line.rpartition("  ")[2] for line in output.splitlines()][
        :2
    ] or "reward error" in output
    assert [("completed", "error"), ("error", "missing")] == [
        (one["status"], one["reward_status"]) for one in documents
    ]


def test_it_is_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And without colours elsewhere.
    """
    record("run.jsonl", [float("nan")])
    assert "\x1b[" not in run("tail", "run.jsonl", "--no-follow")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert "\x1b[31m" in run("tail", "run.jsonl", "--no-follow")[1]


def test_what_is_no_recording_is_an_error() -> None:
    """
    With exit code 2, for both commands.
    """
    Path("notes.txt").write_text("hello\n")

    assert 2 == run("tail", "notes.txt", "--no-follow")[0]
    assert 2 == run("tail", "none.jsonl")[0]
    assert 2 == run("view", "none.jsonl")[0]


def test_an_empty_recording_has_no_lines() -> None:
    """
    It may not have begun.
    """
    Path("run.jsonl").touch()

    assert (0, "") == run("tail", "run.jsonl", "--no-follow")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mttp", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_tail_follows_until_it_is_interrupted() -> None:
    """
    New episodes appear, also those of a new file.
    """
    Path("runs").mkdir()
    record("runs/a.jsonl", [1.0])
    with start("tail", "runs", "--json") as program:
        assert program.stdout is not None
        first = json.loads(program.stdout.readline())
        record("runs/b.jsonl", [0.25])
        second = json.loads(program.stdout.readline())
        program.send_signal(signal.SIGTERM)
        _, complaints = program.communicate(timeout=SECONDS)

    assert (1.0, 0.25) == (first["return"], second["return"])
    assert (0, "") == (program.returncode, complaints)


def test_view_serves_until_it_is_interrupted() -> None:
    """
    It prints its address first, and leaves nothing behind.
    """
    record("run.jsonl", [1.0])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    overview: dict[str, Any] = {}
    with start("view", "run.jsonl", "--port", "0", "--json") as program:
        assert program.stdout is not None
        address = json.loads("".join(program.stdout.readline() for _ in range(3)))["address"]
        until = time.monotonic() + SECONDS
        while not overview.get("views", [])[1:] and time.monotonic() < until:
            with opener.open(f"{address}api/overview", timeout=SECONDS) as answer:
                overview = json.load(answer)
            time.sleep(0.2)
        program.send_signal(signal.SIGTERM)
        _, complaints = program.communicate(timeout=SECONDS)

    assert "run.jsonl" in overview["sources"]
    assert (0, "") == (program.returncode, complaints)


@pytest.mark.parametrize("command", ["view", "tail"])
@pytest.mark.parametrize("store", ["jaeger://127.0.0.1:1?run=x", "tempo://127.0.0.1:1"])
def test_a_trace_store_is_not_followed(command: str, store: str) -> None:
    """
    Only files can be; the command says what reads a store.
    """
    code, output = run(command, store)

    assert 2 == code
    assert "can't be followed: give files or directories, or use mttp report" in " ".join(output.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_view_ends_during_a_search(number: signal.Signals) -> None:
    """
    With exit code 0 and no complaint, also when the signal comes twice.
    """
    record("run.jsonl", [1.0])
    endless = "SELECT count(*) FROM range(1000000000000) t(i) WHERE i % 7 = 8"
    Path("endless.py").write_text(
        "import signal\n"
        "from mttp.cli import main\n"
        "from mttp.viewing.live import LivePages\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it\n"
        "def search(pages, query):\n"
        "    print('searching', flush=True)\n"
        "    with pages._index.snapshot(is_search=True) as database:\n"
        f"        return database.rows({endless!r})\n"
        "LivePages.episodes = search\n"
        "main(['view', 'run.jsonl', '--port', '0', '--json'])\n"
    )
    command = [sys.executable, "endless.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        address = json.loads("".join(program.stdout.readline() for _ in range(3)))["address"]
        until = time.monotonic() + SECONDS
        while '"views":[]' in urllib.request.urlopen(f"{address}api/overview").read().decode():
            assert time.monotonic() < until
            time.sleep(0.1)
        body, headers = b"{}", {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{address}api/episodes", body, headers)

        def ask() -> None:
            with suppress(OSError):
                urllib.request.urlopen(asked, timeout=SECONDS)

        asking = threading.Thread(target=ask)
        asking.start()
        assert "searching\n" == program.stdout.readline()
        program.send_signal(number)
        program.send_signal(number)
        _, complaints = program.communicate(timeout=SECONDS)
        asking.join(SECONDS)

    assert (0, "") == (program.returncode, complaints)


def test_view_with_labels_names_its_file_at_the_end() -> None:
    """
    One recording is needed, beside which they are written.
    """
    Path("runs").mkdir()
    record("runs/a.jsonl", [1.0])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with start("view", "runs", "--port", "0", "--annotate", "ada", "--json") as program:
        assert program.stdout is not None
        address = json.loads("".join(program.stdout.readline() for _ in range(3)))["address"]
        with opener.open(address, timeout=SECONDS) as answer:
            token = answer.read().decode().partition('name="mttp-labels" content="')[2].partition('"')[0]
        headers = {"Content-Type": "application/json", "X-Mttp-Token": token}
        body = json.dumps({"episode": mttp.read("runs").episodes[0].trace_id, "score": 1}).encode()
        until, status = time.monotonic() + SECONDS, 0
        while status != 200 and time.monotonic() < until:
            with suppress(urllib.error.HTTPError):  # while the file is read
                asked = urllib.request.Request(f"{address}api/labels", body, headers)
                with opener.open(asked, timeout=SECONDS) as answer:
                    status = answer.status
        program.send_signal(signal.SIGTERM)
        _, said = program.communicate(timeout=SECONDS)

    (label,) = mttp.read("runs").annotations
    assert (0, 1.0, "ada") == (program.returncode, label.value, label.by)
    assert "wrote 1 label to runs/annotations-" in said
    with start("view", "runs", "runs", "--annotate", "ada") as program:
        _, said = program.communicate(timeout=SECONDS)
    assert (2, True) == (program.returncode, "writes beside one recording" in said)
