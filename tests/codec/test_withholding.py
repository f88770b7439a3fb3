"""What a transport keeps back, what it says of that, and what a reader then gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from projection import project
from specimen import EVERYTHING, episodes

import mttp
from mttp.codec import episodes as codec
from mttp.codec import kinds, runs
from mttp.codec.withholding import Withholding, degraded
from mttp.model.spans import SpanRecord
from mttp.model.values import differences
from mttp.recording import configuration
from mttp.semconv import attributes as a

OTLP = Withholding(content=False, max_elements=4096, max_episode_bytes=1 << 20)
TOKEN_IDS = replace(OTLP, token_ids=True)


def recorded(value: mttp.Episode) -> list[SpanRecord]:
    """The spans of an episode, in the order in which they ended."""
    with mttp.configure(transport="memory://") as session:
        session.record(value)
    found = [record for record in session.records() if a.EPISODE_ID in record.attributes]
    configuration.forget()
    return found


def kept(records: Sequence[SpanRecord], withholding: Withholding) -> list[SpanRecord]:
    """The spans of one episode as a transport may deliver them."""
    spent, delivered = 0, []
    for record in records:
        found = withholding.keep(record.attributes, spent=spent, status=record.status_message)
        spent = found.spent
        delivered.append(replace(record, attributes=found.values, status_message=found.status))
    return delivered


def upper(key: str, value: Any) -> Any:
    """Text in capitals, the rest as it is."""
    return value.upper() if isinstance(value, str) and key != a.INPUTS_JSON else value


def noted(key: str, value: Any) -> Any:
    """Something else for everything, of another type."""
    return {"was": type(value).__name__}


def zeroed(key: str, value: Any) -> Any:
    """The array itself, overwritten; nothing of what is no array."""
    if not isinstance(value, np.ndarray):
        return None
    value[...] = 0
    return value.reshape(-1)


def broken(key: str, value: Any) -> Any:
    """Raises."""
    raise ValueError(f"{value!r} must not be seen")


withholdings = st.builds(
    Withholding,
    content=st.booleans(),
    token_ids=st.sampled_from([None, False, True]),
    redact=st.sampled_from([None, upper, noted, zeroed, broken]),
    max_elements=st.none() | st.integers(0, 6),
    max_episode_bytes=st.none() | st.integers(0, 120),
)


@pytest.mark.parametrize("hook", [None, upper, noted, zeroed, broken])
@pytest.mark.parametrize(
    "limits", [{}, {"max_elements": 2}, {"max_episode_bytes": 100}, {"content": False}, {"token_ids": False}]
)
def test_of_everything_a_reader_gets_the_projection(hook: Any, limits: Mapping[str, Any]) -> None:
    """
    An episode that uses every part of the vocabulary reads as `project` says.
    """
    records, withholding = recorded(EVERYTHING), Withholding(**{"redact": hook, **limits})

    expected = project(codec.decode(records), withholding)

    assert [] == differences(expected, codec.decode(kept(records, withholding)))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(episodes(), withholdings)
@example(EVERYTHING, OTLP)
@example(EVERYTHING, TOKEN_IDS)
def test_of_any_episode_a_reader_gets_the_projection(value: mttp.Episode, withholding: Withholding) -> None:
    """
    Withholding from spans and projecting values are two statements of the same thing.
    """
    records = recorded(value)

    expected = project(codec.decode(records), withholding)

    assert [] == differences(expected, codec.decode(kept(records, withholding)))


@pytest.mark.parametrize(
    "withholding", [Withholding(content=False), Withholding(redact=noted), Withholding()]
)
def test_of_a_run_a_reader_gets_the_projection(withholding: Withholding) -> None:
    """
    The configuration is content; its digest is not.
    """
    with mttp.configure(transport="memory://", config={"lr": 0.1}) as session:
        pass
    records = [record for record in session.records() if kinds.is_run(record)]

    expected = project(runs.decode(records), withholding)

    found = runs.decode(kept(records, withholding))
    assert [] == differences(expected, found)
    assert found.config_sha256 is not None
    assert (found.config == {"lr": 0.1}) is (found.omissions == ())


def test_an_unchanged_span_is_not_copied() -> None:
    """
    A transport that withholds nothing costs nothing.
    """
    values = {a.ACTION_VALUE: np.zeros(9), a.TOKEN_IDS: np.zeros(9, np.int64)}

    found = Withholding().keep(values, spent=5)

    assert (True, 5 + 72, False) == (found.values is values, found.spent, found.changed)


def test_content_that_is_off_is_named_and_leaves_its_type_and_shape() -> None:
    """
    What kind of thing was there can still be seen.
    """
    values = {
        a.STEP_INDEX: 1,
        a.ACTION_VALUE: np.zeros((2, 3)),
        a.ACTION_DTYPE: "float64",
        a.ACTION_SHAPE: [2, 3],
    }

    found = Withholding(content=False).keep(values)

    rest = {a.STEP_INDEX: 1, a.ACTION_DTYPE: "float64", a.ACTION_SHAPE: [2, 3]}
    assert rest | {a.OMISSIONS: ["mttp.action.value: content is off"]} == found.values
    assert 4 == len(values)


def test_the_content_of_other_conventions_is_content() -> None:
    """
    What an instrumentation of a model's client records goes the same way.
    """
    messages = '[{"role":"user"}]'
    values = {a.GEN_AI_INPUT_MESSAGES: messages, a.GEN_AI_REQUEST_MODEL: "qwen"}

    found = Withholding(content=False).keep(values)

    omissions = ["gen_ai.input.messages: content is off"]
    assert {a.GEN_AI_REQUEST_MODEL: "qwen", a.OMISSIONS: omissions} == found.values


def test_a_hook_that_changes_its_argument_changes_nothing_else() -> None:
    """
    Other transports deliver the array as it was recorded.
    """
    array = np.ones(3)

    found = Withholding(redact=zeroed).keep({a.OBSERVATION_VALUE: array})

    assert [1.0, 1.0, 1.0] == array.tolist()
    assert [0.0, 0.0, 0.0] == found.values[a.OBSERVATION_VALUE].tolist()


def test_a_hook_that_raises_withholds() -> None:
    """
    What could not be redacted is not delivered, and the error does not quote it.
    """
    found = Withholding(redact=broken).keep({a.ACTION_VALUE: "secret"})

    assert {a.OMISSIONS: ["mttp.action.value: redaction raised ValueError"]} == found.values


def test_a_hook_that_changes_nothing_is_not_mentioned() -> None:
    """
    An omission says that something is missing.
    """
    found = Withholding(redact=lambda key, value: value).keep({a.ACTION_VALUE: [float("nan")]})

    assert not found.changed


def test_a_token_array_over_the_limit_takes_its_block_along() -> None:
    """
    Counts and means stay; each array is named with its own reason.
    """
    block = mttp.Tokens(ids=range(3), prompt_ids=[1], logprobs=[-1.0, -2.0, -3.0])
    with mttp.configure(transport="memory://") as session, mttp.episode() as episode, episode.step() as step:
        step.tokens(ids=block.ids, prompt_ids=block.prompt_ids, logprobs=block.logprobs)
    values = next(record.attributes for record in session.records() if record.name == "step")

    found = Withholding(max_elements=2).keep(values).values

    limit = "3 elements, the limit is 2"
    assert [
        f"mttp.token.ids: {limit}",
        f"mttp.token.logprobs: {limit}",
        "mttp.token.prompt_ids: left out with mttp.token.ids",
    ] == found[a.OMISSIONS]
    assert ("none", f"mttp.token.ids: {limit}") == (found[a.TOKEN_ENCODING], found[a.TOKEN_OMITTED_REASON])
    assert (3, 1, -2.0) == (found[a.TOKEN_COUNT], found[a.TOKEN_PROMPT_COUNT], found[a.TOKEN_MEAN_LOGPROB])
    assert not {a.TOKEN_IDS, a.TOKEN_PROMPT_IDS, a.TOKEN_LOGPROBS, a.TOKEN_LAYOUT} & found.keys()


def test_an_episode_spends_its_budget_in_order_of_delivery() -> None:
    """
    A block that does not fit any more is left out, and a smaller one may still fit.
    """
    sizes = (4, 5, 2)
    steps = tuple(
        mttp.Step(index=index, tokens=mttp.Tokens(ids=range(size))) for index, size in enumerate(sizes)
    )

    records = kept(recorded(mttp.Episode(steps=steps)), Withholding(max_episode_bytes=48))

    blocks = [step.tokens for step in codec.decode(records).steps]
    assert [True, False, True] == [block.ids is not None for block in blocks if block]
    assert "40 bytes are beyond the episode's 48" == blocks[1].omitted_reason  # type: ignore[union-attr]
    assert 5 == blocks[1].count  # type: ignore[union-attr]


def test_earlier_omissions_are_kept() -> None:
    """
    Omissions add up.
    """
    values = {a.OMISSIONS: ["mttp.observation.value: 9 bytes, the limit is 8"], a.ACTION_VALUE: "x"}

    found = Withholding(content=False).keep(values)

    assert [*values[a.OMISSIONS], "mttp.action.value: content is off"] == found.values[a.OMISSIONS]


def test_a_span_becomes_smaller_in_steps() -> None:
    """
    Arrays go first, then content, then whatever else is long; identity stays to the end.
    """
    values = {
        a.STEP_INDEX: 3,
        a.TOKEN_IDS: np.arange(3),
        a.TOKEN_LAYOUT: "[]",
        a.TOKEN_ENCODING: "array",
        a.OBSERVATION_VALUE: np.zeros(2),
        a.ACTION_VALUE: "4",
        f"{a.METADATA}.note": "n" * 2000,
    }

    rungs = list(degraded(values, "too much"))

    gone = [sorted(values.keys() - rung.keys() - {a.TOKEN_LAYOUT}) for rung in rungs]
    arrays = [a.OBSERVATION_VALUE, a.TOKEN_IDS]
    with_content = sorted([*arrays, a.ACTION_VALUE])
    assert [arrays, with_content, sorted([*with_content, f"{a.METADATA}.note"])] == gone
    assert [[f"{key}: too much" for key in missing] for missing in gone] == [r[a.OMISSIONS] for r in rungs]
    assert [("none", "too much", 3)] * 3 == [
        (rung[a.TOKEN_ENCODING], rung[a.TOKEN_OMITTED_REASON], rung[a.STEP_INDEX]) for rung in rungs
    ]
