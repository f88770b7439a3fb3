"""Pictures in messages and observations: kept once, bounded, and named where they are left out."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

import mttp

SMALL, OTHER, LARGE = (bytes([number]) * size for number, size in ((1, 3_000), (2, 3_000), (3, 1_048_577)))


def url(data: bytes) -> str:
    """Return a picture as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def left(data: bytes) -> str:
    """Return what stands for a picture that is not repeated."""
    return f"data:image/png;bytes={len(data)};sha256={hashlib.sha256(data).hexdigest()},"


def shows(*pictures: bytes) -> list[dict[str, Any]]:
    """Return a message with pictures."""
    parts = [{"type": "image_url", "image_url": {"url": url(data)}} for data in pictures]
    return [{"role": "user", "content": [{"type": "text", "text": "Look."}, *parts]}]


def urls(content: Any) -> list[str]:
    """Return the URLs of the pictures in the last message."""
    return [part["image_url"]["url"] for part in content[-1]["content"][1:]]


def test_a_picture_is_recorded_once_in_an_episode(tmp_path: Path) -> None:
    """
    Later ones are named by size and digest; another episode has its own.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl"):
        for _ in range(2):
            with mttp.episode() as episode:
                for pictures in ((SMALL,), (SMALL, OTHER), (OTHER,)):
                    with episode.step() as step:
                        step.observation(shows(*pictures))

    for found in mttp.read(f"{tmp_path}/a.jsonl"):
        assert [[url(SMALL)], [left(SMALL), url(OTHER)], [left(OTHER)]] == [
            urls(step.observation) for step in found.steps
        ]
    assert 2 == (tmp_path / "a.jsonl").read_text().count(url(SMALL))


def test_a_replaced_observation_keeps_its_picture(session: mttp.Session) -> None:
    """
    Also where the first one had the same.
    """
    with mttp.episode(), mttp.step() as step:
        step.observation(shows(SMALL))
        step.observation(shows(SMALL, OTHER))

    (found,) = mttp.read(session).episodes[0].steps
    assert [url(SMALL), url(OTHER)] == urls(found.observation)


def test_a_large_picture_is_left_out_and_named(session: mttp.Session) -> None:
    """
    The rest of the message is recorded.
    """
    with mttp.episode(), mttp.step() as step:
        step.observation(shows(LARGE, SMALL))
        step.model_call("m")

    (found,) = mttp.read(session).episodes[0].steps
    assert [left(LARGE), url(SMALL)] == urls(found.observation)
    assert ("mttp.observation.value: a part takes 1048577 bytes, the limit is 1048576",) == found.omissions


def test_pictures_of_calls_are_the_same_ones(session: mttp.Session) -> None:
    """
    A tool's screenshot, in the form of another library's, is recorded where it comes first.
    """
    data = base64.b64encode(SMALL).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    with mttp.episode(), mttp.step() as step:
        with step.tool_call("screenshot") as call:
            call.result([{"type": "image", "source": source}])
        step.observation(shows(SMALL))

    (found,) = mttp.read(session).episodes[0].steps
    assert (data, [left(SMALL)]) == (found.calls[0].result[0]["source"]["data"], urls(found.observation))


@pytest.mark.parametrize("text", ["data:" * 1_000, "data:image/png;base64,%%%" + "x" * 5_000])
def test_what_only_looks_like_a_picture_stays(session: mttp.Session, text: str) -> None:
    """
    Text is text.
    """
    with mttp.episode(), mttp.step() as step:
        step.observation({"text": text})

    assert {"text": text} == mttp.read(session).episodes[0].steps[0].observation
