"""Encoding by a helper: the same bytes, and nothing depends on it."""

from __future__ import annotations

import logging
import os
import signal
import struct
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from otlp import Spans
from polling import eventually
from programs import told

import mttp
from mttp.codec.profiles import full, packed
from mttp.otlp.encoding import encoder
from mttp.otlp.json import encode_records
from mttp.otlp.json_decode import decode_line
from mttp.otlp.processes import FAILED, Process, ProcessLostError, can_start
from mttp.otlp.protobuf import encode_span
from mttp.otlp.spans.span_records import EndedSpan, framed, record

pytestmark = pytest.mark.skipif(not can_start(), reason="no helper can be started here")


def played(steps: int = 20, **block: object) -> list[ReadableSpan]:
    """The spans of a run with one episode."""
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode(task="t") as episode:
        for number in range(steps):
            with episode.step() as step:
                step.reward(float(number))
                step.tokens(**{"ids": np.arange(8), "logprobs": [-0.5] * 8} | block)
    return keeping.spans


def here(spans: Sequence[ReadableSpan]) -> bytes:
    """What this process makes of them."""
    return b"".join(encode_records(record(span, packed) for span in spans))


def test_lines_are_the_same(helped: encoder._Encoding) -> None:
    """
    Byte for byte.
    """
    spans = played()

    assert here(spans) == encoder.lines(list(map(framed, spans)))
    assert helped._spent == 0


def test_messages_are_the_same(helped: encoder._Encoding) -> None:
    """
    Byte for byte.
    """
    spans = played()

    assert [encode_span(record(span, full)) for span in spans] == encoder.messages(list(map(framed, spans)))


def test_few_spans_stay_here(helped: encoder._Encoding) -> None:
    """
    To ask takes longer than to do it.
    """
    spans = played(steps=1)[:2]

    assert here(spans) == encoder.lines(list(map(framed, spans)))
    assert helped._spent > 0


def span_ids(spans: Sequence[ReadableSpan]) -> list[str]:
    """Their ids, in order."""
    return [record(span).span_id for span in spans]


def test_a_value_that_can_not_travel_stays_here(helped: encoder._Encoding) -> None:
    """
    Its frame is JSON by now, and comes first.
    """
    spans = played()
    odd = record(spans[3], full)
    spans[3] = EndedSpan(replace(odd, attributes={**odd.attributes, "odd": "\ud800"}))

    found = encoder.lines(list(map(framed, spans)))

    assert span_ids([spans[3], *spans[:3], *spans[4:]]) == [
        each.span_id for line in found.splitlines() for each in decode_line(line)
    ]
    assert helped._helper is not None


def test_a_helper_that_dies_is_replaced_once(
    helped: encoder._Encoding, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nothing is lost: this process goes on, and after the second death stays alone for two minutes.
    """
    monkeypatch.setattr(encoder, "WORTH_SECONDS", 0.0)
    spans, expected = played(), None
    for deaths in (1, 2):
        helper = helped._helper
        assert helper is not None
        assert eventually(lambda helper=helper: helper.is_ready)
        os.kill(helper.pid, signal.SIGKILL)
        expected = expected or here(spans)
        assert expected == encoder.lines(list(map(framed, spans)))
        assert deaths == helped.deaths

    assert expected == encoder.lines(list(map(framed, spans)))
    assert helped._helper is None
    assert 2 == caplog.text.count("was lost, and this process encodes instead")

    monkeypatch.setattr(encoder, "REST_SECONDS", 0.0)  # as if it were over

    assert expected == encoder.lines(list(map(framed, spans)))
    assert helped._helper is not None


def test_an_answer_that_no_caller_waited_for_is_no_other_answer(
    helped: encoder._Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Ctrl-C may come while the helper works: what is written next is not what was asked for before.
    """
    before, spans = played(steps=30), played()

    def interrupted(*_: object) -> tuple[int, bytes]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("mttp.otlp.processes._received", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.lines(list(map(framed, before)))

    assert here(spans) == encoder.lines(list(map(framed, spans)))
    assert here(before) == encoder.lines(list(map(framed, before)))


def test_what_fails_there_fails_here_too(helped: encoder._Encoding) -> None:
    """
    The encoding process replies with an error and goes on; the caller finds out why.
    """
    spans = played()
    odd = record(spans[5], full)
    spans[5] = EndedSpan(replace(odd, start_time=-1))
    helper = helped._helper
    assert helper is not None

    assert FAILED == helper.ask(b"", 5.0, kind=99)[0]
    assert encoder.messages(list(map(framed, spans))) is None
    with pytest.raises(struct.error, match=r"out of range|format requires"):
        encode_span(record(spans[5], full))
    assert len(spans) - 6 == len(encoder.messages(list(map(framed, spans[6:]))) or ())


def test_a_module_that_is_none_is_a_lost_helper() -> None:
    """
    As is anything else that does not start.
    """
    helper = Process("mttp.nowhere")

    with pytest.raises(ProcessLostError, match="does not start"):
        eventually(lambda: helper.is_ready)
    helper.close()


def test_it_is_started_once_it_is_worth_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Not for a test or a notebook cell.
    """
    own = encoder._Encoding()
    monkeypatch.setattr(encoder, "_encoding", own)
    spans = played()
    encoder.lines(list(map(framed, spans)))
    assert own._helper is None

    monkeypatch.setattr(encoder, "WORTH_SECONDS", 0.0)
    encoder.lines(list(map(framed, spans)))

    assert own._helper is not None
    own.close()


def test_it_is_started_whatever_is_among_the_places_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Python passes over what is no text there, and so does the helper.
    """
    own = encoder._Encoding()
    monkeypatch.setattr(sys, "path", [Path("somewhere"), *sys.path])
    own._start()
    helper = own._helper

    assert helper is not None
    assert eventually(lambda: helper.is_ready)
    own.close()


def test_files_where_the_process_works_are_no_modules_of_the_helper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    Else it would run whatever happens to be called as a module that it needs.
    """
    for name in ("mttp", "numpy", "runpy", "struct"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    helper = Process("mttp.otlp.encoding")

    assert eventually(lambda: helper.is_ready)
    helper.close()


def test_many_open_files_are_no_obstacle() -> None:
    """
    A descriptor may be large: data loaders keep thousands.
    """
    resource = pytest.importorskip("resource")  # not on Windows, where there is no helper either
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, limits[1]))
    taken: list[int] = []
    try:
        taken += [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        helper = Process("mttp.otlp.encoding")
        assert eventually(lambda: helper.is_ready)
        helper.close()
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where no process may be started.
    """
    monkeypatch.setenv("MTTP_HELPER", "off")
    monkeypatch.setattr(encoder, "WORTH_SECONDS", 0.0)
    own = encoder._Encoding()
    monkeypatch.setattr(encoder, "_encoding", own)

    encoder.lines(list(map(framed, played())))

    assert own._helper is None


SCRIPT = """
import os, sys, time
print("started", flush=True)
import numpy as np
import mttp
from mttp.otlp.encoding import encoder
encoder.WORTH_SECONDS = 0.0
with mttp.configure("file://runs/a.jsonl") as session:
    for number in range(40):
        with mttp.episode() as episode:
            for _ in range(8):
                with episode.step() as step:
                    step.tokens(ids=np.arange(32), logprobs=np.zeros(32))
        session.flush()
    helper = encoder._encoding._helper
    while not helper.is_ready:
        time.sleep(0.02)
    for _ in range(10):
        with mttp.episode() as episode:
            episode.step().end()
    session.flush()
    print(helper.is_ready, helper.pid, flush=True)
    {end}
"""


def run(directory: Path, end: str) -> tuple[list[str], int]:
    """The lines that a script prints that has no guard around what it does, and how it ends."""
    import subprocess

    (directory / "script.py").write_text(textwrap.dedent(SCRIPT).replace("{end}", end))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout.split(), done.returncode


def is_over(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
@pytest.mark.parametrize(
    ("end", "code"),
    [("os.kill(os.getpid(), 9)", -9), ("sys.exit(4)", 4)],
)
def test_it_ends_with_whom_it_works_for(tmp_path: Path, end: str, code: int) -> None:
    """
    However that ends; and the script is not run twice, guard or not.
    """
    (started, ready, pid), found = run(tmp_path, end)

    assert ("started", "True", code) == (started, ready, found)
    assert eventually(lambda: is_over(int(pid)))
    assert 50 == len(list(mttp.read(tmp_path / "runs")))


def test_a_forked_child_does_without_its_parents(helped: encoder._Encoding, tmp_path: Path) -> None:
    """
    Both would read each other's answers.
    """
    spans = played()
    expected = here(spans)
    child = os.fork()
    if not child:
        encoder._encoding.after_fork_in_child()  # that of the fixture is not registered
        found = encoder.lines(list(map(framed, spans)))
        os._exit(0 if encoder._encoding._helper is None and found == expected else 1)

    assert 0 == os.waitpid(child, 0)[1]
    assert expected == encoder.lines(list(map(framed, spans)))
    assert helped._helper is not None


def test_a_helper_records_nothing_itself() -> None:
    """
    Whatever variables say.
    """
    found = told(
        """
        import json, os
        os.environ["OTEL_TRACES_EXPORTER"] = "console"
        os.environ["MTTP_TRANSPORT"] = "file://nowhere.jsonl"
        from mttp.otlp.processes import own_environment
        kept = own_environment()
        others = [name for name in kept if name.startswith("MTTP_")]
        print(json.dumps({"sdk": kept["OTEL_SDK_DISABLED"], "others": others}))
        """
    )

    assert {"sdk": "true", "others": []} == found


def test_quiet_helpers_are_lost_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """
    A stopped process does not reply; the socket times out, and the caller goes on.
    """
    helper = Process("mttp.otlp.encoding")
    assert eventually(lambda: helper.is_ready)
    os.kill(helper.pid, signal.SIGKILL)

    with caplog.at_level(logging.WARNING), pytest.raises(ProcessLostError):
        helper.ask(b"x" * 10_000_000, 5.0, kind=1)
    helper.close()
