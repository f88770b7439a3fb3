"""`mttp push`: a recording in a receiver, as it was recorded, and from where an earlier push stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.resources import Resource
from specimen import EVERYTHING
from stores import TempoServer, serving
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.codec.profiles import arrays, full, packed, unpacked
from mttp.model.values import same
from mttp.recording import configuration
from mttp.semconv import attributes as a
from mttp.testing import Behaviour, OtlpReceiver, assert_same


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """A receiver with a collector's limits."""
    with OtlpReceiver() as opened:
        yield opened


@pytest.fixture
def recording() -> str:
    """A file with one episode that uses everything, and one of packed steps."""
    with mttp.configure("file://runs/a.jsonl", steps="packed", run="pushed") as session:
        session.record(EVERYTHING)
        with mttp.episode(env="long") as episode:
            for number in range(1500):
                with episode.step() as step:
                    step.action(np.array([number, 1.0], np.float32))
                    step.reward(1.0)
    assert session.close()
    configuration.forget()
    return "runs/a.jsonl"


def push(*arguments: str, code: int = 0) -> Any:
    """The command's result, which exits so."""
    result = CliRunner().invoke(app, ["push", *arguments], prog_name="mttp")

    assert code == result.exit_code, result.output + result.stderr
    return result


def assert_all_there(recording: str, receiver: OtlpReceiver) -> None:
    """The receiver has the episodes of the recording, whole."""
    expected, found = mttp.read(recording), mttp.read(receiver)

    assert ([], len(expected)) == (found.problems, len(found))
    for one, other in zip(expected, found, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_was_recorded_arrives_with_its_ids_and_times(
    recording: str, receiver: OtlpReceiver, protocol: str
) -> None:
    """
    Packed arrays arrive as arrays, which any store can show; nothing is left behind beside the file.
    """
    to = receiver.http_address if protocol == "http" else receiver.grpc_address

    said = push(recording, "--to", to, "--content", "--profile", "collector").stdout

    assert "of 3 traces to " in said
    assert_all_there(recording, receiver)
    assert ["a.jsonl"] == [path.name for path in Path("runs").iterdir()]
    assert all(a.TOKEN_DATA not in record.attributes for record in receiver.records())


def test_content_stays_at_home_unless_it_is_asked_for(recording: str, receiver: OtlpReceiver) -> None:
    """
    As with a session that sends: omissions are on the span, and printed by the command.
    """
    said = push(recording, "--to", receiver.http_address).stdout

    assert "omitted: mttp.inputs.json of 1 span (content is off)" in said
    episode = mttp.read(receiver).episodes[0]
    assert (None, True) == (episode.inputs, f"{a.INPUTS_JSON}: content is off" in episode.omissions)


def test_a_profile_is_applied(recording: str, receiver: OtlpReceiver) -> None:
    """
    No bytes and no NaN reach a store that would lose them.
    """
    document = json.loads(
        push(recording, "--to", receiver.http_address, "--profile", "phoenix", "--content", "--json").stdout
    )

    assert ("phoenix", {}) == (document["profile"], document["lost"])
    reasons = {item["reason"] for item in document["left_out"]}
    assert {
        "bytes are not supported by the receiver",
        "NaN and infinities are not supported by the receiver",
    } <= reasons


def test_now_moves_every_time_by_the_same(recording: str, receiver: OtlpReceiver) -> None:
    """
    Some stores refuse old spans: ids, durations and steps stay as they are.
    """
    document = json.loads(
        push(
            recording, "--to", receiver.http_address, "--profile", "collector", "--content", "--now", "--json"
        ).stdout
    )

    before, after = mttp.read(recording).episodes, mttp.read(receiver).episodes
    by = after[0].start_time - before[0].start_time
    assert by == round(document["shifted_seconds"] * 1e9) > 0
    for one, other in zip(before, after, strict=True):
        assert (one.trace_id, by) == (other.trace_id, other.end_time - one.end_time)
        assert {by} == {
            now.start_time - then.start_time for then, now in zip(one.steps, other.steps, strict=True)
        }


def test_a_push_that_breaks_off_goes_on_where_it_stopped(
    recording: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Delivered spans are not sent again, and the state is deleted at the end.
    """
    monkeypatch.setattr("mttp.workflows.pushing.BATCH_SPANS", 5)
    receiver.behave(Behaviour(), Behaviour(), Behaviour(status=503), forever=True)
    arguments = (
        recording,
        "--to",
        receiver.http_address,
        "--profile",
        "collector",
        "--content",
        "--max-retry-seconds",
        "0",
    )

    broken = push(*arguments, code=2)
    assert "503 Service Unavailable" in broken.stderr
    assert "10 spans are done; run the same command again to resume" in broken.stderr
    receiver.behave()

    document = json.loads(push(*arguments, "--json").stdout)

    assert 10 == document["resumed"]
    assert_all_there(recording, receiver)
    assert 0 == mttp.read(receiver).duplicates
    assert ["a.jsonl"] == [path.name for path in Path("runs").iterdir()]


def test_a_state_of_another_push_is_not_taken_for_this_one(recording: str, receiver: OtlpReceiver) -> None:
    """
    A recording that has changed since is a different push; --restart starts from the beginning.
    """
    Path("state").write_text(json.dumps({"about": {"files": []}, "so_far": {"spans": 3}}))
    arguments = (
        recording,
        "--to",
        receiver.http_address,
        "--profile",
        "collector",
        "--content",
        "--state",
        "state",
    )

    assert "state belongs to a different push" in push(*arguments, code=2).stderr
    push(*arguments, "--restart")
    assert_all_there(recording, receiver)
    assert not Path("state").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"about": {}}', '{"about": {}, "so_far": 7}', "\x00"])
@pytest.mark.parametrize("restart", [[], ["--restart"]])
def test_no_file_of_somebody_else_s_is_replaced(
    recording: str, receiver: OtlpReceiver, content: str, restart: list[str]
) -> None:
    """
    It may be the recording itself, by a slip of the fingers.
    """
    Path("state").write_text(content)

    said = push(recording, "--to", receiver.http_address, "--state", "state", *restart, code=2).stderr

    assert "state is not the state of a push; remove it, or name another file with --state" in said
    assert (content, []) == (Path("state").read_text(), receiver.requests)


def test_a_state_is_a_regular_file(recording: str, receiver: OtlpReceiver) -> None:
    """
    A device would be read for ever.
    """
    said = push(recording, "--to", receiver.http_address, "--state", "/dev/zero", code=2).stderr

    assert "/dev/zero can't be read: it is a device, not a regular file" in said
    assert [] == receiver.requests


def test_where_nothing_can_be_noted_nothing_is_sent(recording: str, receiver: OtlpReceiver) -> None:
    """
    A recording may be in a read-only directory.
    """
    said = push(recording, "--to", receiver.http_address, "--state", "nowhere/state", code=2).stderr

    assert (
        "can't be written to nowhere/state: No such file or directory; --state FILE names another file"
        in said
    )
    assert [] == receiver.requests


def test_what_was_turned_down_before_a_break_counts(
    recording: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The exit code is that of the whole push.
    """
    monkeypatch.setattr("mttp.workflows.pushing.BATCH_SPANS", 5)
    receiver.behave(Behaviour(rejected=2, message="too old"), Behaviour(status=503), forever=True)
    arguments = (
        recording,
        "--to",
        receiver.http_address,
        "--profile",
        "collector",
        "--content",
        "--max-retry-seconds",
        "0",
        "--json",
    )
    push(*arguments, code=2)
    receiver.behave()

    document = json.loads(push(*arguments, code=1).stdout)

    assert (5, {"partial_success": 2}) == (document["resumed"], document["lost"])


def test_what_one_store_has_can_be_pushed_to_another(recording: str, receiver: OtlpReceiver) -> None:
    """
    A source is whatever is read.
    """
    with serving(TempoServer()) as place:
        push(recording, "--to", f"http://{place}", "--content", "--profile", "tempo")
        push(f"tempo://{place}", "--to", receiver.http_address, "--content")

    assert ([], 2) == (mttp.read(receiver).problems, len(mttp.read(receiver)))


def test_a_dry_run_sends_nothing(recording: str, receiver: OtlpReceiver) -> None:
    """
    It says how much there is, and what would be left out.
    """
    document = json.loads(push(recording, "--to", receiver.http_address, "--dry-run", "--json").stdout)

    assert [] == receiver.requests
    assert (True, 3) == (document["dry_run"], document["traces"])
    assert document["bytes"] > 10_000


def test_a_busy_receiver_is_tried_again(recording: str, receiver: OtlpReceiver) -> None:
    """
    After as long as it asks for.
    """
    receiver.behave(Behaviour(status=429, retry_after=0, message="slower"))

    said = push(recording, "--to", receiver.http_address, "--profile", "collector", "--content").stderr

    assert "429 Too Many Requests" in said
    assert "slower" in said
    assert "retrying" in said
    assert_all_there(recording, receiver)


def test_what_is_the_trouble_is_reported_once(
    recording: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    However often it is tried again, and not at once again where a receiver asks for that.
    """
    slept: list[float] = []
    monkeypatch.setattr("mttp.workflows.pushing.sleep", slept.append)
    receiver.behave(*[Behaviour(status=429, retry_after=0)] * 5)

    said = push(recording, "--to", receiver.http_address).stderr

    assert 1 == said.count("429 Too Many Requests")
    assert [0.5, 1.0, 2.0, 4.0, 8.0] == slept


def test_a_receiver_that_asks_for_more_patience_than_there_is_is_reported(
    recording: str, receiver: OtlpReceiver
) -> None:
    """
    With what it asks for, and how to have it.
    """
    receiver.behave(Behaviour(status=429, retry_after=600), forever=True)

    said = push(recording, "--to", receiver.http_address, code=2).stderr

    assert "asks to wait 600 seconds; gave up after 30 seconds (--max-retry-seconds)" in said


def test_large_texts_go_by_few() -> None:
    """
    Memory is bounded by bytes, not by spans.
    """
    with mttp.configure("file://texts.jsonl") as session, mttp.episode() as episode:
        for _ in range(8):
            with episode.step() as step:
                step.observation("x" * 1_000_000)
    assert session.close()
    configuration.forget()

    with OtlpReceiver() as receiver:
        push("texts.jsonl", "--to", receiver.http_address, "--content")

        assert 8 == mttp.read(receiver).episodes[0].length
        assert 3_100_000 > max(request.bytes for request in receiver.requests)


def test_the_machine_is_not_looked_at_for_each_span(
    recording: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The resource is that of the recording; the SDK would start two threads for every span to find another.
    """
    made: list[object] = []
    monkeypatch.setattr(Resource, "create", lambda *given: made.append(given))

    push(recording, "--to", receiver.http_address, "--dry-run")

    assert [] == made


def test_an_interrupted_push_says_how_far_it_came(
    recording: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    And goes on from there.
    """

    def interrupt(seconds: float) -> None:
        if seconds:
            raise KeyboardInterrupt

    monkeypatch.setattr("mttp.workflows.pushing.sleep", interrupt)
    arguments = (recording, "--to", receiver.http_address, "--profile", "collector", "--content")

    said = push(*arguments, "--rate", "5", code=130).stderr
    document = json.loads(push(*arguments, "--json").stdout)

    assert "interrupted after 5 spans; run the same command again to resume" in said
    assert 5 == document["resumed"]
    assert_all_there(recording, receiver)


def test_what_can_t_be_read_is_reported(recording: str, receiver: OtlpReceiver) -> None:
    """
    A damaged line costs its spans and no others.
    """
    lines = Path(recording).read_bytes().splitlines(keepends=True)
    Path("damaged.jsonl").write_bytes(b"".join([*lines[:1], b'{"resourceSpans": [{"sco\n', *lines[1:]]))

    said = push("damaged.jsonl", "--to", receiver.http_address).stdout
    document = json.loads(push("damaged.jsonl", "--to", receiver.http_address, "--json").stdout)

    assert "1 problem\n" in said
    assert "damaged.jsonl:2" in said
    assert ["broken_line"] == [problem["kind"] for problem in document["problems"]]
    assert 3 == document["traces"]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (Behaviour(status=401), ["401", "give credentials as headers"]),
        (Behaviour(status=405), ["405", "check port and path"]),
        (Behaviour(status=422), ["422", "profile=mlflow"]),
    ],
    ids=["401", "405", "422"],
)
def test_what_would_be_turned_down_anyway_stops_at_once(
    recording: str, receiver: OtlpReceiver, behaviour: Behaviour, words: list[str]
) -> None:
    """
    The message says what came back and what to try.
    """
    receiver.behave(behaviour, forever=True)

    said = push(recording, "--to", receiver.http_address, code=2).stderr

    assert [] == [
        word for word in ["the receiver accepted nothing", receiver.http_address, *words] if word not in said
    ]


def test_spans_that_are_turned_down_are_counted(recording: str, receiver: OtlpReceiver) -> None:
    """
    The rest is sent, and the exit code says that not everything was taken.
    """
    receiver.behave(Behaviour(rejected=3, message="too old"))

    said = push(recording, "--to", receiver.http_address, code=1).stdout

    assert "rejected: 3 spans (partial_success)" in said
    assert "too old" in said


def test_no_receiver_listens() -> None:
    """
    It says so, and that nothing has been sent.
    """
    with mttp.configure("file://b.jsonl"), mttp.episode():
        pass

    said = push("b.jsonl", "--to", "http://127.0.0.1:1", "--max-retry-seconds", "0", code=2).stderr

    assert "http://127.0.0.1:1/v1/traces" in said
    assert "0 spans are done;" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--to", "localhost:4318"),
            "'localhost:4318' is not the address of a receiver; write http://HOST:4318",
        ),
        (("--to", "file://x.jsonl"), "is not the address of a receiver"),
        (
            ("--to", "http://h:1", "--profile", "grafana"),
            "unknown profile 'grafana'; known are jaeger, collector",
        ),
        (("--to", "http://h:1", "--header", "secret"), "--header is NAME=VALUE"),
    ],
)
def test_wrong_use_is_reported(recording: str, arguments: tuple[str, ...], words: str) -> None:
    """
    Before anything is read or sent.
    """
    assert words in push(recording, *arguments, code=2).stderr


def test_a_rate_slows_it_down(
    recording: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It sends what a second may have, and waits for what is due before the next.
    """
    slept: list[float] = []
    monkeypatch.setattr("mttp.workflows.pushing.sleep", slept.append)
    monkeypatch.setattr("mttp.workflows.pushing.monotonic", lambda: 0.0)

    document = json.loads(push(recording, "--to", receiver.http_address, "--rate", "10", "--json").stdout)

    sizes = [request.spans for request in receiver.requests]
    assert [float(second) for second in range(math.ceil(document["spans"] / 10))] == slept
    whole, rest = divmod(document["spans"], 10)  # how many parts there are is a matter of time
    assert [10] * whole + [rest] * bool(rest) == sizes


@pytest.mark.parametrize("profile", [packed, arrays, full])
def test_unpacking_gives_the_arrays_that_were_packed(recording: str, profile: Any) -> None:
    """
    Of every span, in whichever form it was delivered.
    """
    for record in mttp.scan(recording, arrays=True):
        recorded = unpacked(record.attributes)
        again = unpacked(profile(recorded))

        assert [] == [key for key in recorded if not same(recorded[key], again.get(key))]
        assert recorded.keys() == again.keys()


def test_a_page_for_people_is_no_receiver() -> None:
    """
    A proxy or a user interface answers 200 to anything, and takes nothing.
    """
    with mttp.configure("file://c.jsonl"), mttp.episode():
        pass

    with serving(lambda asked: (200, "text/html; charset=utf-8", b"<html>Welcome</html>")) as place:
        said = push("c.jsonl", "--to", f"http://{place}", code=2).stderr

    assert "200 OK: Welcome (an HTML page: is a proxy or a user interface at that port?)" in said


@pytest.mark.parametrize(
    "damage", [(b'"intValue":"', b'"intValue":"9'), (b"<i", b"<q"), (b"int64", b"int65"), (b"[[", b"[")]
)
def test_damaged_arrays_stop_no_push(damage: tuple[bytes, bytes], tmp_path: Path) -> None:
    """
    Whatever is wrong with layouts and counts, all other spans arrive.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}"):
        for number in range(4):
            with mttp.episode(env="toy", task=f"task/{number}") as episode:
                for index in range(5):
                    with episode.step() as step:
                        step.observation([index, 1])
                        step.tokens([1, 2, 3], logprobs=[-0.1, -0.2, -0.3])
                        step.reward(1.0)
    path.write_bytes(path.read_bytes().replace(*damage))
    with OtlpReceiver() as receiver:
        done = CliRunner().invoke(
            app, ["push", str(path), "--to", receiver.http_address, "--profile", "phoenix"]
        )
        assert done.exit_code in (0, 1), done.output
        arrived = {episode.task for episode in mttp.read(receiver)}
    assert {f"task/{number}" for number in range(4)} == arrived
