"""Steps that are written together say what each says alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from otlp import Spans

import mttp
from mttp.codec.profiles import packed
from mttp.encoding import works
from mttp.encoding.parcels import gathered, pack
from mttp.encoding.stretch import Stretch
from mttp.encoding.unpacking import unpack
from mttp.readable import record
from mttp.spans import SpanRecord
from mttp.values import same
from mttp.wire import otlp_json
from mttp.wire.otlp_json import encode_records
from mttp.wire.otlp_json_decode import decode_line


def written(spans: Sequence[ReadableSpan]) -> bytes:
    """The lines of the spans, of each by itself."""
    return b"".join(encode_records(record(span, packed) for span in spans))


def check(spans: Sequence[ReadableSpan]) -> None:
    """In this process and by way of another the lines are the same."""
    together = [one if isinstance(one, Stretch) else record(one, packed) for one in gathered(spans)]
    assert written(spans) == works.lines(together)
    assert written(spans) == works.WORKS[works.LINES](pack(spans))


INTEGERS = {
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 150_000) | st.integers(-200, 200),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-128, 127),
    "uint32": st.integers(0, 2**32 - 1),
}
FLOATS = {
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "float16": st.floats(width=16),
}


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Token blocks of a few lengths, so that some are alike."""
    count = draw(st.sampled_from([0, 1, 3, 3, 3, 40]))
    integers, floats = draw(st.sampled_from([*INTEGERS])), draw(st.sampled_from([*FLOATS]))
    ids = draw(st.lists(INTEGERS[integers], min_size=count, max_size=count))
    logprobs = draw(st.lists(FLOATS[floats], min_size=count, max_size=count))
    if draw(st.booleans()):
        return {"ids": ids, "logprobs": logprobs}
    block = {"ids": np.array(ids, integers), "logprobs": np.array(logprobs, floats)}
    return {**block, "masks": [1] * count} if draw(st.integers(0, 5)) == 0 else block


STEPS = st.lists(
    st.tuples(
        st.none() | st.floats(allow_nan=False, allow_infinity=False), st.none() | blocks(), st.booleans()
    ),
    max_size=8,
)


@given(STEPS, st.sampled_from(["", "a", "50% of %d, %b"]))
@example([(0.5, {"ids": np.arange(9), "logprobs": np.full(9, -np.inf)}, False)] * 70, "a")
@settings(max_examples=150, deadline=None)
def test_steps_are_written_together_as_alone(steps: list[Any], agent: str) -> None:
    """
    Whatever they are paid and made of, an agent's too, and with others in between.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode(task="100% sure") as episode:
        for reward, block, is_unusual in steps:
            with (episode.agent(agent) if agent else episode).step() as step:
                if reward is not None:
                    step.reward(reward)
                if block is not None:
                    step.tokens(**block)
                if is_unusual:
                    step.metric("own", 1.0)

    check(keeping.spans)


def test_what_nearly_every_step_says_is_written_together() -> None:
    """
    In the order of recording, episode by episode.
    """
    keeping = Spans()
    with mttp.configure(keeping):
        for _ in range(2):
            with mttp.episode() as episode:
                for length in (3, 3, 5):
                    with episode.step() as step:
                        step.tokens(ids=np.arange(length), logprobs=np.zeros(length, np.float32))
    found = gathered(keeping.spans)

    assert [3, 3] == [len(one.rows) for one in found if isinstance(one, Stretch)]
    check(keeping.spans)


def test_what_is_said_of_an_episode_while_it_lasts_is_written() -> None:
    """
    Numbers of the user's own, by way of another process, too.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as bare, mttp.episode(task="t") as episode:
        bare.metric("own", 1.0)
        episode.metric("own", 2.0)
    roots = [one for one in unpack(pack(keeping.spans), packed) if isinstance(one, SpanRecord)]

    assert [2.0, 1.0] == [root.attributes["mttp.metric.own"] for root in roots[-3:-1]]
    check(keeping.spans)


def test_a_step_that_was_renamed_keeps_its_name() -> None:
    """
    Among others that were not.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for name in ("step", "mine", "step"):
            with episode.step() as step:
                step.span.update_name(name)
    found = gathered(keeping.spans)

    assert "mine" in [one.name for one in found if isinstance(one, ReadableSpan)]
    check(keeping.spans)


def test_what_blocks_are_made_of_is_not_remembered() -> None:
    """
    Only how such steps are written, however long they are and whatever else is said of them.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for number, length in enumerate((20_000, 20_000, 3, 3)):
            with episode.step() as step:
                logprobs = np.full(length, -float(number))
                step.tokens(ids=np.arange(length), logprobs=logprobs, policy_version=f"{number}")
    otlp_json._template.cache_clear()
    check(keeping.spans)

    assert 1 == otlp_json._template.cache_info().currsize


def test_numbers_beyond_64_bits() -> None:
    """
    An index that OTLP has no integer for is text, as anywhere.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for index in (2**63 - 1, 2**70):
            with episode.step(index=index) as step:
                step.reward(1.0)

    check(keeping.spans)


def test_long_blocks_are_written_one_by_one() -> None:
    """
    They would be copied once more, to no avail.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for _ in range(3):
            with episode.step() as step:
                step.tokens(ids=np.arange(20_000), logprobs=np.linspace(-3, 0, 20_000, dtype=np.float32))

    check(keeping.spans)


def test_lines_stay_short() -> None:
    """
    Steps that are told together take as many lines as they would each by itself.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for _ in range(300):
            with episode.step() as step:
                step.tokens(ids=np.arange(1000), logprobs=np.zeros(1000, np.float32))
    lines = works.WORKS[works.LINES](pack(keeping.spans)).splitlines(keepends=True)

    assert len(lines) > 2
    assert [] == [len(line) for line in lines if len(line) > otlp_json.MAX_LINE_BYTES]
    check(keeping.spans)


@pytest.mark.parametrize("lengths", [(1000,), (1000, 999, 129, 1)])
@pytest.mark.parametrize("count", [1, 7, 63, 64, 65, 130])
def test_means_are_those_of_a_block_alone(count: int, lengths: Sequence[int]) -> None:
    """
    To the last bit, however many are added up at once.
    """
    random = np.random.default_rng(count)
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for number in range(count):
            length = lengths[number % len(lengths)]
            with episode.step() as step:
                logprobs = random.normal(-1, 1, length).astype(np.float32)
                step.tokens(ids=random.integers(0, 9, length), logprobs=logprobs)

    check(keeping.spans)


def test_a_start_at_the_epoch_reads_the_same() -> None:
    """
    Alone it would not be written.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode(start_time=0) as episode, episode.step(start_time=0) as step:
        step.reward(1.0)
    (line,) = decode_line(works.WORKS[works.LINES](pack(keeping.spans[:1])))

    assert same(line.attributes, record(keeping.spans[0], packed).attributes)
    assert 0 == line.start_time
