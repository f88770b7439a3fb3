"""What fuzzing found stays mended, and fuzzing finds what it is for."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from fuzzing import parent, seeds
from fuzzing.targets import TARGETS, Target, _store_address
from fuzzing.worker import inputs, run
from programs import told

from mttp.errors import ReadError

pytest.importorskip("pyarrow")

DEEP = b"[" * 100_000
NESTED = b'{"a":' * 600 + b"1" + b"}" * 600
HUGE = b"1" * 400
UNCOUNTED = (
    b'{"scopeSpans": [{"spans": [{"traceId": "%b", "spanId": "%b", "name": "run", "kind": 1, '
    b'"startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": ['
    b'{"key": "mttp.run.id", "value": {"stringValue": "RUN"}}, '
    b'{"key": "mttp.run.status", "value": {"stringValue": "completed"}}, '
    b'{"key": "mttp.run.episode_count", "value": {}}]}]}]}'
) % (b"5" * 32, b"7" * 16)


def _span(name: str, *attributes: tuple[str, str, str]) -> bytes:
    """A line with one span."""
    pairs = [{"key": key, "value": {kind: value}} for key, kind, value in attributes]
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": name, "attributes": pairs}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode() + b"\n"


FOUND = [
    ("import-wandb", b'{"trace_id": "a", "id": "b", "op_name": "c", "started_at": %b}' % HUGE),
    (
        "import-agent_traces",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": [1]}]}]}]}]}',
    ),
    (
        "listener",
        b'\0\1{"version":"1","id":"a","source":"b","type":"health.ping","timestamp_ns":1,"payload":{},'
        b'"checksum":"\x80"}',
    ),
    ("labels-json", DEEP),
    ("store-jaeger", DEEP),
    ("store-jaeger", b'{"result": {"resourceSpans": [%b]}}' % NESTED),
    ("store-tempo", b'{"trace": {"resourceSpans": [%b]}}' % NESTED),
    (
        "push",
        _span(
            "steps",
            ("mttp.steps.count", "intValue", "9000000000"),
            ("mttp.steps.layout", "stringValue", "[]"),
        ),
    ),
    (
        "push",
        _span(
            "step", ("mttp.token.encoding", "stringValue", "array"), ("mttp.token.layout", "stringValue", "[")
        ),
    ),
    ("spool", b'{"\0": []}\n'),
    ("spool-owner", DEEP),
    ("spool-sent", b"1 99999999999999999999999"),
]
"""Inputs, cut down, that led to other errors than those of `mttp.errors`."""


def _zip(**changes: int) -> bytes:
    """A zip file of one member, with other bytes at places of its central directory."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b'{"a": "%b"}' % (b"x" * 500))
    data = bytearray(buffer.getvalue())
    directory = data.index(b"PK\x01\x02")
    for place, value in changes.items():
        data[directory + int(place[1:])] = value
    return bytes(data)


@pytest.mark.parametrize(
    "data", [_zip(_6=246), _zip(_8=1), _zip(_10=9), _zip(_9=8, _46=255), _zip(_10=93, _23=127)]
)
def test_a_zip_file_that_python_can_not_read_is_refused(data: bytes, tmp_path: Path) -> None:
    """
    Of a later version, encrypted, compressed in a way that Python does not know, with a name that is no text,
    or with a size beyond the file's.
    """
    from mttp.formats.zip_files import json_member

    path = tmp_path / "log.eval"
    path.write_bytes(data)

    assert run(TARGETS["import-inspect"], data) is None
    with pytest.raises(ReadError):
        json_member(path, "header.json")


def test_a_damaged_member_of_a_zip_file_is_refused(tmp_path: Path) -> None:
    """
    Its deflated bytes are none.
    """
    from mttp.formats.zip_files import json_member

    data = bytearray(_zip())
    start = 30 + len("header.json")
    data[start : start + 4] = b"\xff" * 4
    path = tmp_path / "log.eval"
    path.write_bytes(data)
    with pytest.raises(ReadError):
        json_member(path, "header.json")


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_fuzzing_found_stays_mended(name: str, data: bytes) -> None:
    """
    Huge numbers, lists where text is expected, and deeper nesting than Python's parser takes.
    """
    assert run(TARGETS[name], data) is None


@pytest.mark.parametrize("body", [b"\x8e", DEEP, b"\xff\xfe"])
def test_a_reply_that_can_not_be_parsed_is_no_answer(body: bytes) -> None:
    """
    Bytes that are no text, and JSON that is nested too deeply: no OTLP receiver sent them.
    """
    from mttp.transports.otlp.http_answers import otlp_answer

    assert otlp_answer(body) is None


def test_a_run_without_its_count_is_read_from_a_store() -> None:
    """
    The attribute is there, and has no value.
    """
    run_id = _store_address("tempo").partition("run=")[2].partition("&")[0]
    document = b'{"trace": {"resourceSpans": [%b]}}' % UNCOUNTED.replace(b"RUN", run_id.encode())
    for blanks in range(6):  # they decide which reply of the store is exchanged
        assert run(TARGETS["store-tempo"], document + b" " * blanks) is None


def test_an_error_of_mttp_is_no_fault_and_any_other_is() -> None:
    """
    The fault has its traceback.
    """

    def take(data: bytes) -> None:
        raise ReadError("damaged") if data else KeyError("lost")

    target = Target(list, take)

    assert run(target, b"x") is None
    assert "KeyError: 'lost'" in (run(target, b"") or "")


def test_an_input_that_takes_too_long_is_a_fault() -> None:
    """
    A second of CPU time, however busy the machine is.
    """

    def take(_: bytes) -> None:
        while True:
            pass

    fault = run(Target(list, take), b"x")

    assert "TookTooLongError" in (fault or "")


def test_a_process_that_dies_is_a_fault_and_another_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    All inputs are tried, and the report has the number of the first one that kills the process.
    """
    program = (
        "import fuzzing.targets as t, os, zlib\n"
        "t.TARGETS = {'dying': t.Target(lambda: [b'abc'], "
        "lambda data: os.kill(os.getpid(), 9) if zlib.crc32(data) % 7 == 0 else None, is_text=False)}\n"
        "import fuzzing.worker\nfuzzing.worker.main()\n"
    )
    (tmp_path / "dying.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(parent, "WORKER", "dying")
    found = parent.fuzzed("dying", parent.options(["--inputs", "40", "--out", str(tmp_path)]), 1e9)

    assert 40 == found["inputs"]
    (fault,) = found["faults"].values()

    assert fault["times"] >= 2
    assert "-9" in json.dumps(found["faults"])


def test_inputs_follow_from_their_number() -> None:
    """
    An input can be made again from the seed, the target and its number.
    """
    good = [b"some bytes that are good"]
    target = Target(lambda: good, len)
    first, again = inputs("a", target, 7), inputs("a", target, 7)

    assert [first(number) for number in (5, 6)] == [again(number) for number in (5, 6)]
    assert first(5) != inputs("a", target, 8)(5)


def test_seeds_are_the_same_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Else the input of a number would be another one in the process that saves it.
    """
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    code = """
        import json, os, tempfile, zlib
        os.chdir(tempfile.mkdtemp(dir="."))
        from fuzzing import seeds
        print(json.dumps([zlib.crc32(line) for line in seeds.json_lines()]))
    """

    assert told(code) == told(code)


@pytest.mark.parametrize("made", [seeds.messages, seeds.parquet_files])
def test_recordings_are_converted_to_seeds(made: Callable[[], list[bytes]]) -> None:
    """
    In each form of file that is read.
    """
    assert all(made())
