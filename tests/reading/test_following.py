"""Recordings that grow: what is new is read once, whole lines only, under any name."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import mttp
from mttp.errors import ReadError
from mttp.mist import span_messages
from mttp.reading import following, parquet
from mttp.reading.following import Follower
from mttp.reading.scanning import Scan


def lines(count: int = 6) -> list[bytes]:
    """The lines of a recording of that many episodes."""
    with mttp.configure("file://written.jsonl"):
        for number in range(count):
            with mttp.episode(env="e", task=f"t{number}") as episode:
                episode.reward(float(number))
            mttp.current_session().flush()
    return Path("written.jsonl").read_bytes().splitlines(keepends=True)


def spans(follower: Follower) -> list[tuple[str, str]]:
    """Trace and span ids that a poll gives, episodes that are whole as their trace id."""
    found = []
    for arrived in follower.poll():
        for one in arrived.spans:
            row = getattr(one, "row", None)
            found.append((row.trace_id, "episode") if row is not None else (one.trace_id, one.span_id))
    return found


def test_each_line_is_read_once() -> None:
    """
    Also where it was written in two parts.
    """
    written = lines()
    path, half = Path("run.jsonl"), len(written[1]) // 2
    path.write_bytes(written[0] + written[1][:half])
    follower = Follower(["run.jsonl"])

    first = spans(follower)
    again = spans(follower)
    with path.open("ab") as file:
        file.write(written[1][half:] + b"".join(written[2:]))
    rest = spans(follower)

    Path("whole.jsonl").write_bytes(b"".join(written))
    assert [] == again
    assert spans(Follower(["whole.jsonl"])) == first + rest
    assert [] == follower.problems


def test_parts_of_a_large_file_are_places_where_lines_are_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Each part has whole lines, whatever its size.
    """
    written = lines(20)
    Path("run.jsonl").write_bytes(b"".join(written))
    for size in (1, 100, 1000, 5000):
        monkeypatch.setattr(following, "_PART", size)
        arrived = [*Follower(["run.jsonl"]).poll()]

        parts = [one.part for one in arrived if one.part is not None]
        content = Path("run.jsonl").read_bytes()
        assert 0 == parts[0].start
        assert [one.end for one in parts] == [*(one.start for one in parts[1:]), len(content)]
        assert all(content[one.start : one.end].endswith(b"\n") for one in parts)


def test_a_renamed_file_is_not_read_again() -> None:
    """
    A rotated one is known by its inode, and the new file of its name is read from its start.
    """
    written = lines()
    Path("runs").mkdir()
    Path("runs/run.jsonl").write_bytes(b"".join(written[:3]))
    follower = Follower(["runs"])
    first = spans(follower)
    Path("runs/run.jsonl").rename("runs/run.1.jsonl")
    Path("runs/run.jsonl").write_bytes(b"".join(written[3:]))

    second = spans(follower)

    assert set() == {*first} & {*second}
    assert [] == spans(follower)


def test_a_file_that_is_written_anew_is_read_anew() -> None:
    """
    It is shorter than what was read.
    """
    written = lines()
    Path("run.jsonl").write_bytes(b"".join(written))
    follower = Follower(["run.jsonl"])
    before = spans(follower)
    Path("run.jsonl").write_bytes(b"".join(written[:2]))

    assert before[:2] == spans(follower)[:2]


@pytest.mark.parametrize("name", ["run.jsonl.gz", "run.parquet"])
def test_a_compressed_file_is_read_again_after_a_change(name: str) -> None:
    """
    From its start, and not as long as nothing changes.
    """
    written = lines()

    def write(count: int) -> None:
        Path("part.jsonl").write_bytes(b"".join(written[:count]))
        if name.endswith(".gz"):
            Path(name).write_bytes(gzip.compress(Path("part.jsonl").read_bytes()))
        else:
            parquet.write(Path(name), Scan("part.jsonl", arrays=True, as_written=True))

    write(3)
    follower = Follower([name])
    first, again = {*spans(follower)}, spans(follower)
    write(len(written))

    assert [] == again
    assert first < {*spans(follower)}


def test_messages_are_followed() -> None:
    """
    Their lines hold spans, too.
    """
    lines(2)
    messages = [
        message
        for record in Scan("written.jsonl", arrays=True, as_written=True)
        for message in span_messages.envelop(record)
    ]
    Path("run.mttp.jsonl").write_bytes(b"".join(message.to_bytes() + b"\n" for message in messages))
    of_messages, of_lines = (
        {trace_id for trace_id, _ in spans(Follower([name]))} for name in ("run.mttp.jsonl", "written.jsonl")
    )

    assert of_lines == of_messages


def test_a_broken_line_is_a_problem() -> None:
    """
    The lines around it are read.
    """
    written = lines()
    Path("run.jsonl").write_bytes(written[0] + b'{"resourceSpans": 3}\n' + b"".join(written[1:]))
    follower = Follower(["run.jsonl"])

    assert len(spans(follower)) >= len(written) - 1
    assert 1 == len(follower.problems)


def test_what_does_not_exist_is_an_error() -> None:
    """
    A session can't be followed either.
    """
    with pytest.raises(ReadError, match=r"none\.jsonl does not exist"):
        spans(Follower(["none.jsonl"]))
