"""Recorded episodes have the facts that the training loop states."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace

import mttp
from mttp.model import Agent, Call, Grade
from mttp.recording import configuration


def only(session: mttp.Session) -> mttp.Episode:
    """Return the recorded episode."""
    (episode,) = mttp.read(session).episodes
    return episode


def record_contract() -> mttp.recording.OpenEpisode:
    """Record the first example of the documentation."""
    with mttp.episode(
        env="toy-math",
        task="train/17",
        group="g1",
        seed=3,
        policy="tiny@4",
        slices=["algebra"],
        inputs={"answer": "4"},
        metadata={"teacher": "none"},
    ) as ep:
        with ep.step() as step:
            step.observation("2+2=?")
            step.action("<answer>4</answer>")
            step.tokens(ids=[11, 12, 13], logprobs=[-0.1, -0.2, -0.3], prompt_ids=[1, 2])
            step.reward(0.0)
        ep.metric("searches", 2)
        ep.reward(0.9, components={"correct": 1.0, "format": 0.5}, weights={"correct": 0.8, "format": 0.2})
        ep.end(terminated=True, outcome="success")
    return ep


def test_a_handle_has_the_properties_of_the_value(session: mttp.Session) -> None:
    """
    The open handle and the value that is read agree on every shared property.
    """
    shared = (
        "trace_id run_id env task group seed policy slices inputs metadata metrics status outcome "
        "terminated truncated return_ length"
    ).split()

    handle = record_contract()

    read = only(session)
    assert {name: getattr(handle, name) for name in shared} == {name: getattr(read, name) for name in shared}


def test_reading_adds_steps_reward_and_completeness(session: mttp.Session) -> None:
    """
    Steps have their tokens, and the scoring has components and weights.
    """
    record_contract()

    read = only(session)

    assert [11, 12, 13] == read.steps[0].tokens.ids.tolist()
    assert (0.9, "ok") == (read.reward.value, read.reward.status)
    assert ({"correct": 1.0, "format": 0.5}, {"correct": 0.8, "format": 0.2}) == (
        read.reward.components,
        read.reward.weights,
    )
    assert read.complete


def test_return_is_the_sum_of_steps_unless_a_total_is_stated(session: mttp.Session) -> None:
    """
    Both are kept, with the basis.
    """
    for total in (None, 5.0):
        with mttp.episode() as episode:
            for reward in (1.0, 2.0):
                with episode.step() as step:
                    step.reward(reward)
            if total is not None:
                episode.reward(total)

    summed, stated = mttp.read(session).episodes

    assert (3.0, "steps", 3.0) == (summed.return_, summed.return_basis, summed.step_reward_sum)
    assert (5.0, "episode", 3.0) == (stated.return_, stated.return_basis, stated.step_reward_sum)


def test_an_episode_without_rewards_has_no_return(session: mttp.Session) -> None:
    """
    An unknown return is not zero.
    """
    with mttp.episode() as episode, episode.step():
        pass

    read = only(session)

    assert (None, None, "missing") == (read.return_, read.return_basis, read.reward.status)


@pytest.mark.parametrize(
    ("value", "status", "raw"),
    [
        (math.nan, "error", "nan"),
        (math.inf, "error", "inf"),
        (-math.inf, "error", "-inf"),
        ("0.5", "error", "0.5"),
        (None, "missing", None),
        ([1, 2], "error", "[1, 2]"),
        (10**400, "error", None),
    ],
)
def test_a_reward_that_is_not_a_number_is_an_error(
    session: mttp.Session, value: object, status: str, raw: str | None
) -> None:
    """
    Its text is kept, and the return is unknown.
    """
    with mttp.episode() as episode:
        with episode.step() as step:
            step.reward(1.0)
        episode.reward(value)

    read = only(session)

    assert (None, status) == (read.reward.value, read.reward.status)
    assert read.reward.raw is not None if raw is None and status == "error" else read.reward.raw == raw
    assert (1.0 if status == "missing" else None) == read.return_
    assert (1 if status == "error" else 0) == session.stats.faults["reward_invalid"]


def test_an_invalid_step_reward_leaves_the_return_unknown(session: mttp.Session) -> None:
    """
    The sum of the other rewards is kept as `step_reward_sum`.
    """
    with mttp.episode() as episode:
        for reward in (1.0, float("nan"), 2.0):
            with episode.step() as step:
                step.reward(reward)

    read = only(session)

    assert (None, "steps", 3.0) == (read.return_, read.return_basis, read.step_reward_sum)
    assert ["ok", "error", "ok"] == [step.reward_status for step in read.steps]


def test_a_component_without_a_number_has_a_status(session: mttp.Session) -> None:
    """
    None and NaN are not zero.
    """
    with mttp.episode() as episode:
        episode.reward(0.5, components={"a": 0.0, "b": None, "c": float("nan"), "D-e": np.float32(0.5)})

    read = only(session)

    assert {"a": 0.0, "D-e": 0.5} == read.reward.components
    assert {"b": "missing", "c": "error"} == read.reward.component_statuses


def test_a_total_that_differs_from_the_weighted_sum_is_a_fault(session: mttp.Session) -> None:
    """
    The caller's number is recorded unchanged.
    """
    with mttp.episode() as episode:
        episode.reward(0.7, components={"a": 1.0}, weights={"a": 1.0})

    read = only(session)

    assert (0.7, True, 1) == (
        read.reward.value,
        read.reward.mismatch,
        session.stats.faults["reward_mismatch"],
    )


def test_forty_components_are_read_back(session: mttp.Session) -> None:
    """
    Those beyond the limit of one span have spans of their own.
    """
    components = {f"part_{index}": float(index) for index in range(40)}
    with mttp.episode() as episode:
        episode.reward(1.0, components=components)

    read = only(session)

    assert components == read.reward.components
    assert read.complete


def test_an_exception_is_recorded_and_raised(session: mttp.Session) -> None:
    """
    The step and the episode have the status error.
    """
    error = KeyError("x")
    with pytest.raises(KeyError) as caught, mttp.episode() as episode, episode.step():
        raise error

    read = only(session)

    assert caught.value is error
    assert ("error", "KeyError", "'x'") == (read.status, read.error_type, read.error_message)
    assert "KeyError" == read.steps[0].error_type


class MuteError(Exception):
    """An exception that raises when it is printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_can_t_be_printed_is_recorded(session: mttp.Session) -> None:
    """
    The step and the episode end.
    """
    with pytest.raises(MuteError), mttp.episode() as episode, episode.step():
        raise MuteError

    read = only(session)

    assert ("error", "<MuteError whose message raised RuntimeError>") == (read.status, read.error_message)
    assert [read.error_type] == [step.error_type for step in read.steps]
    assert {} == dict(session.stats.faults)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_an_interruption_has_the_status_aborted(session: mttp.Session, error: type[BaseException]) -> None:
    """
    It is not an error.
    """
    with pytest.raises(error), mttp.episode():
        raise error

    read = only(session)

    assert ("aborted", None) == (read.status, read.error_type)


def test_current_handles_follow_the_blocks(session: mttp.Session) -> None:
    """
    Inside a block its handle is the current one; outside there is an inert one.
    """
    assert not mttp.current_episode()
    with mttp.episode() as outer:
        assert mttp.current_episode() is outer
        with mttp.step() as step:
            assert mttp.current_step() is step
            with mttp.episode() as inner:
                assert mttp.current_episode() is inner
                assert not mttp.current_step()
            assert mttp.current_episode() is outer
            assert mttp.current_step() is step
        assert not mttp.current_step()

    assert not mttp.current_episode()
    assert {} == dict(session.stats.faults)


def test_a_step_s_block_makes_its_episode_current(session: mttp.Session) -> None:
    """
    The episode's own block need not be entered.
    """
    episode = mttp.episode()
    with episode.step():
        assert mttp.current_episode() is episode
    assert not mttp.current_episode()
    episode.end()

    assert only(session).complete


def test_inert_handles_accept_every_call(session: mttp.Session) -> None:
    """
    A step outside an episode does nothing, and is counted.
    """
    with mttp.step() as step:
        step.observation(1)
        step.tokens([1])
        step.reward(1.0)
        with step.model_call("x") as call:
            call.response(model="y")
    mttp.current_episode().metric("x", 1)
    mttp.current_episode().reward(1.0)

    assert not step
    assert 1 == session.stats.faults["step_outside_episode"]
    assert [] == mttp.read(session).episodes


def test_nested_episodes_are_traces_of_their_own(session: mttp.Session) -> None:
    """
    The inner one is linked to the current span, and is not part of the outer one.
    """
    with mttp.episode(env="outer") as outer, outer.step(), mttp.episode(env="inner") as inner:
        pass

    linked = [
        link.span_id for span in session.records() if span.name == "episode inner" for link in span.links
    ]
    assert outer.trace_id != inner.trace_id
    assert [outer_step.span_id for outer_step in mttp.read(session).episodes[0].steps] == linked


def test_an_unsampled_outer_span_is_linked(session: mttp.Session) -> None:
    """
    It is not the episode's parent.
    """
    context = trace.SpanContext(7, 8, is_remote=False, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(context)), mttp.episode() as episode:
        pass

    root = next(span for span in session.records() if span.name.split()[0] == "episode")
    assert ("", [f"{8:016x}"]) == (root.parent_id, [link.span_id for link in root.links])
    assert f"{7:032x}" != episode.trace_id


def test_explicit_handles_need_no_block(session: mttp.Session) -> None:
    """
    Handles can be passed where the context is not propagated.
    """
    episode = mttp.episode(env="x")
    step = episode.step()
    step.reward(2.0)
    step.end()
    episode.end(outcome="failure")

    read = only(session)

    assert (2.0, "failure", 1) == (read.return_, read.outcome, read.length)
    assert not mttp.current_episode()


def test_an_open_step_ends_with_its_episode(session: mttp.Session) -> None:
    """
    Ending the episode in a step's block keeps the step's facts.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.reward(1.0)
        with step.tool_call("search") as call:
            call.result("found")
        step.model_call("never ended")
        episode.end(terminated=True)

    read = only(session)

    assert (1.0, True) == (read.return_, read.complete)
    assert ["search", "never ended"] == [call.name for call in read.steps[0].calls]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('{"q": 1, "deep": {"a": [null]}}', {"q": 1, "deep": {"a": [None]}}),
        ({"q": "{}"}, {"q": "{}"}),
        ('{"q": 1', '{"q": 1'),
        ("a text", "a text"),
        ("7", "7"),
        (None, None),
    ],
)
def test_arguments_of_a_tool_as_json_are_an_object(
    session: mttp.Session, given: object, kept: object
) -> None:
    """
    As a model gives them, they are a text; what is no JSON of an object stays a text, as in a finished value.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.tool_call("search", arguments=given).end()
    with mttp.episode() as other:
        other.tool_call("search", arguments=given).end()
    finished = mttp.Step(calls=(Call(operation="execute_tool", name="search", arguments=given),))
    session.record(mttp.Episode(steps=(finished,)))
    live, of_agent, value = (one.steps[0].calls[0].arguments for one in mttp.read(session))

    assert (kept, kept, given) == (live, of_agent, value)


def test_calls_after_the_end_are_faults(session: mttp.Session) -> None:
    """
    A second end and other calls change nothing.
    """
    with mttp.episode() as episode:
        step = episode.step()
        step.end()
        step.reward(9.0)
        episode.end(outcome="success")
        episode.end(outcome="failure")
        episode.reward(9.0)
        assert not episode.step()

    read = only(session)

    assert ("success", None, 1) == (read.outcome, read.return_, len(read.steps))
    assert 4 == session.stats.faults["after_end"]


def test_async_with_records_what_with_does(session: mttp.Session) -> None:
    """
    A coroutine uses the handles with `async with`.
    """

    async def run() -> None:
        async with mttp.episode(env="a") as episode, episode.step() as step:
            await asyncio.sleep(0)
            assert mttp.current_step() is step
            step.reward(1.0)

    asyncio.run(run())

    assert 1.0 == only(session).return_


def test_interleaved_episodes_keep_their_own_steps(session: mttp.Session) -> None:
    """
    Tasks and threads have their own current episode.
    """

    async def rollout(number: int) -> None:
        with mttp.episode(task=number):
            for index in range(5):
                with mttp.step() as step:
                    await asyncio.sleep(0)
                    mttp.current_step().observation(number * 1000 + index)
                    await asyncio.sleep(0)
                    step.reward(number)

    async def tasks(first: int) -> None:
        await asyncio.gather(*(rollout(number) for number in range(first, first + 25)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda first: asyncio.run(tasks(first)), range(0, 100, 25)))

    read = {int(str(episode.task)): episode for episode in mttp.read(session).episodes}
    assert list(range(100)) == sorted(read)
    for number, episode in read.items():
        assert [number * 1000 + index for index in range(5)] == [step.observation for step in episode.steps]
        assert (5.0 * number, True) == (episode.return_, episode.complete)


def test_threads_can_share_an_episode_by_handle(session: mttp.Session) -> None:
    """
    Steps of many threads have different indices.
    """
    with mttp.episode() as episode:

        def work() -> None:
            for _ in range(50):
                with episode.step() as step:
                    step.reward(1.0)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    read = only(session)

    assert (200.0, list(range(200))) == (read.return_, [step.index for step in read.steps])
    assert read.complete


def test_an_unfinished_async_generator_leaves_nothing_current(session: mttp.Session) -> None:
    """
    Its episode is aborted, and is not the parent of the next one.
    """

    async def rollouts() -> AsyncIterator[int]:
        with mttp.episode(env="generator") as episode:
            for index in range(10):
                with episode.step():
                    yield index

    async def main() -> None:
        generator = rollouts()
        async for _ in generator:
            break
        await generator.aclose()
        assert not mttp.current_episode()
        with mttp.episode(env="after") as after, after.step():
            pass
        async for _ in rollouts():
            break

    asyncio.run(main())

    statuses = {(episode.env, episode.status) for episode in mttp.read(session).episodes}
    assert {("generator", "aborted"), ("after", "completed")} == statuses


@pytest.mark.parametrize(
    ("given", "dtype", "values"),
    [
        ([1, 2, 3], "int64", [1, 2, 3]),
        ((1, 2), "int64", [1, 2]),
        (np.array([1, 2], np.int32), "int64", [1, 2]),
        (np.array([], np.int32), "int64", []),
        ([], "int64", []),
        ([-(2**63), 2**63 - 1], "int64", [-(2**63), 2**63 - 1]),
    ],
)
def test_token_ids_are_int64(session: mttp.Session, given: object, dtype: str, values: list[int]) -> None:
    """
    Lists and arrays of any integer type are read back as the same numbers.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.tokens(given)

    ids = only(session).steps[0].tokens.ids

    assert (dtype, values) == (ids.dtype.name, ids.tolist())


class Tensor:
    """A stand-in for a torch tensor."""

    def __init__(self, values: object, dtype: str = "torch.float32") -> None:
        self._array = np.array(values, np.float32)
        self.dtype = dtype

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def float(self) -> Tensor:
        return Tensor(self._array)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self._array


class Listed:
    """An array of a library that has only `tolist`."""

    def tolist(self) -> list[float]:
        return [1.0, 2.0]


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        (Tensor([1.5, 2.5]), np.array([1.5, 2.5], np.float32)),
        (Tensor([1.5], "torch.bfloat16"), np.array([1.5], np.float32)),
        (Listed(), [1.0, 2.0]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array(3.0), 3.0),
        (np.array([[True, False]]), np.array([[True, False]])),
        (np.array(["a", None], object), ["a", None]),
        ({"x": np.arange(3)}, {"x": np.arange(3)}),
        ((1, np.array([0.5], np.float32)), (1, np.array([0.5], np.float32))),
        (2**64, str(2**64)),
        ({1, 2}, [1, 2]),
    ],
)
def test_observations_of_any_library_are_recorded(
    session: mttp.Session, given: object, read_as: object
) -> None:
    """
    Arrays, lists and numbers of any library are converted.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.observation(given)

    from mttp.model.values import same

    assert same(read_as, only(session).steps[0].observation)


def test_values_are_copied(session: mttp.Session) -> None:
    """
    A training loop may reuse its buffers at once.
    """
    buffer, ids = np.zeros(3), [1, 2]
    with mttp.episode() as episode, episode.step() as step:
        step.observation(buffer)
        step.tokens(ids, logprobs=buffer[:2])
        buffer += 1
        ids.append(3)

    read = only(session).steps[0]

    assert ([0, 0, 0], [1, 2], [0, 0]) == (
        read.observation.tolist(),
        read.tokens.ids.tolist(),
        read.tokens.logprobs.tolist(),
    )


def test_token_ids_beyond_int64_are_omitted(session: mttp.Session) -> None:
    """
    Their count, the log probabilities and the reason of the omission are recorded.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.tokens([1, 2**63], logprobs=[-1.0, -2.0])
        step.reward(1.0)

    read = only(session).steps[0]

    assert (None, 2, [-1.0, -2.0], 1.0) == (
        read.tokens.ids,
        read.tokens.count,
        read.tokens.logprobs.tolist(),
        read.reward,
    )
    assert "beyond int64" in read.tokens.omitted_reason
    assert 1 == session.stats.faults["tokens_invalid"]


def test_token_arrays_of_another_length_are_unaligned(session: mttp.Session) -> None:
    """
    Lengths that fit are those of completion, prompt and completion, or sampled tokens.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.tokens(
            [1, 2, 3], prompt_ids=[9], masks=[1, 0, 1], logprobs=[-1.0, -2.0], values=[0.0] * 4, rewards=[1.0]
        )

    tokens = only(session).steps[0].tokens

    assert {
        "ids": "completion",
        "prompt_ids": "prompt",
        "masks": "completion",
        "logprobs": "sampled",
        "values": "all",
        "rewards": "unaligned",
    } == tokens.alignment
    assert [1.0] == tokens.rewards.tolist()
    assert 1 == session.stats.faults["tokens_unaligned"]


def test_lone_surrogates_are_escaped_and_flagged(session: mttp.Session) -> None:
    """
    Text that UTF-8 can't encode does not lose the span.
    """
    with mttp.episode(task="a\ud800") as episode, episode.step() as step:
        step.observation("b\udfff")

    read = only(session)

    assert (r"a\ud800", r"b\udfff") == (read.task, read.steps[0].observation)
    assert ("surrogates_escaped",) == read.faults


def test_names_of_metrics_are_normalized(session: mttp.Session) -> None:
    """
    Of two names that become equal the first is kept.
    """
    with mttp.episode() as episode:
        episode.metric("reward/format", 1)
        episode.metric("reward/format", 2)
        episode.metric("Reward-Format", 3)
        episode.metric("bad", None)  # type: ignore[arg-type]

    read = only(session)

    assert {"reward_format": 2.0} == read.metrics
    assert (1, 1) == (session.stats.faults["name_collision"], session.stats.faults["metric_invalid"])


def test_user_attributes_are_limited_to_64(session: mttp.Session) -> None:
    """
    Attributes of the identity are never dropped.
    """
    with mttp.episode(env="e") as episode:
        for index in range(70):
            episode.metric(f"m{index}", index)

    read = only(session)

    assert (64, "e", 6) == (len(read.metrics), read.env, session.stats.faults["attributes_refused"])


def test_inputs_may_be_an_array(session: mttp.Session) -> None:
    """
    The truth value of an array is not used.
    """
    for inputs, read in ((np.arange(2), [0, 1]), (np.zeros(1), [0.0]), ([], [])):
        with mttp.episode(inputs=inputs) as episode:
            pass
        assert read == mttp.read(session).episode(episode.trace_id).inputs
    assert {} == session.stats.faults


def test_inputs_that_exist_only_at_the_end_join_the_first_ones(session: mttp.Session) -> None:
    """
    By name, the last value counts; without earlier inputs the end may state any value.
    """
    with mttp.episode(inputs={"answer": "7", "tries": 1}) as episode:
        episode.set_inputs(final=None, messages=[{"role": "user"}])
        episode.set_inputs({"tries": 2})
        episode.end(inputs={"state": [1, {"a": 2}]})
    with mttp.episode() as other:
        other.end(inputs="seven")

    joined = {
        "answer": "7",
        "tries": 2,
        "final": None,
        "messages": [{"role": "user"}],
        "state": [1, {"a": 2}],
    }
    assert [joined, "seven"] == [read.inputs for read in mttp.read(session)]
    assert joined == episode.inputs
    assert {} == session.stats.faults


@pytest.mark.parametrize(
    ("first", "late", "read"),
    [("7", {"final": 1}, "7"), ({"a": 1}, 5, {"a": 1}), ({"a": 1}, {"b": float}, {"a": 1, "b": str(float)})],
)
def test_late_inputs_that_cannot_be_recorded_cost_only_themselves(
    session: mttp.Session, first: object, late: object, read: object
) -> None:
    """
    A fault names them, and the earlier inputs stay.
    """
    with mttp.episode(inputs=first) as episode:
        episode.set_inputs(late)

    assert read == only(session).inputs
    assert 1 == sum(session.stats.faults.values())


def test_late_inputs_after_the_end_are_a_fault(session: mttp.Session) -> None:
    """
    They are not recorded, and the property does not show them.
    """
    with mttp.episode(inputs={"a": 1}) as episode:
        pass
    episode.set_inputs(b=2)

    assert ({"a": 1}, {"a": 1}) == (episode.inputs, only(session).inputs)
    assert {"after_end": 1} == session.stats.faults


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs: inputs.update(a=1),
        lambda inputs: inputs.__setitem__("a", 1),
        lambda inputs: inputs["messages"].append("hi"),
        lambda inputs: inputs["messages"][0].pop("role"),
    ],
)
def test_inputs_of_an_open_episode_are_read_only(
    session: mttp.Session, change: Callable[[Any], object]
) -> None:
    """
    A change that would not be recorded raises at any depth; a copy may change.
    """
    with mttp.episode(inputs={"messages": [{"role": "user"}]}) as episode:
        with pytest.raises(TypeError, match="set_inputs"):
            change(episode.inputs)
        change(copy.deepcopy(episode.inputs))
        change(pickle.loads(pickle.dumps(episode.inputs)))

    assert {"messages": [{"role": "user"}]} == episode.inputs == only(session).inputs


def test_hostile_values_never_raise(session: mttp.Session) -> None:
    """
    An object that raises when it is read is a fault, and all else is recorded.
    """

    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        __str__ = __array__ = tolist = __float__ = __repr__  # type: ignore[assignment]

    with mttp.episode(task=Hostile(), env_index="x", inputs=Hostile(), metadata=7) as episode:  # type: ignore[arg-type]
        with episode.step() as step:
            step.observation(Hostile())
            step.tokens(Hostile())
            step.reward(Hostile())
            step.metric("x", Hostile())  # type: ignore[arg-type]
        episode.reward(1.0, components=7)  # type: ignore[arg-type]
        episode.metric("ok", 1)

    read = only(session)

    assert ({"ok": 1.0}, 1) == (read.metrics, len(read.steps))


def test_faults_are_logged_once_each(session: mttp.Session, caplog: pytest.LogCaptureFixture) -> None:
    """
    A thousand bad rewards are one log line and a count.
    """
    with mttp.episode() as episode:
        for _ in range(50):
            with episode.step() as step:
                step.reward(float("nan"))

    assert 1 == len([line for line in caplog.messages if "reward_invalid" in line])
    assert 50 == session.stats.faults["reward_invalid"]


def test_ten_thousand_steps_and_eight_thousand_tokens() -> None:
    """
    Long episodes and long steps are read back from a file.
    """
    with mttp.configure(transport="file://long.jsonl"), mttp.episode() as episode:
        for index in range(10_000):
            with episode.step() as step:
                step.action(index)
                step.reward(0.5)
        with episode.step() as step:
            step.tokens(np.arange(8_000), logprobs=np.linspace(-1, 0, 8_000))

    recording = mttp.read("long.jsonl")

    read = recording.episodes[0]
    assert (10_001, 5_000.0, True) == (read.length, read.return_, read.complete)
    assert list(range(10_000)) == [step.action for step in read.steps[:-1]]
    assert list(range(8_000)) == read.steps[-1].tokens.ids.tolist()


def test_calls_of_models_and_tools_are_read_back(session: mttp.Session) -> None:
    """
    Requests, responses and errors have the names of the GenAI conventions.
    """
    with mttp.episode() as episode, episode.step() as step:
        with step.model_call("qwen", provider="vllm", temperature=0.7, max_tokens=5) as call:
            call.response(model="qwen-3", id="r1", finish_reasons=["stop"], input_tokens=3, output_tokens=5)
        with pytest.raises(TimeoutError), step.tool_call("search", arguments={"q": 1}, id="c1"):
            raise TimeoutError("slow")

    model, tool = only(session).steps[0].calls

    assert ("chat", "qwen", "vllm", "r1", "qwen-3", ("stop",), 3, 5) == (
        model.operation,
        model.name,
        model.provider,
        model.id,
        model.response_model,
        model.finish_reasons,
        model.input_tokens,
        model.output_tokens,
    )
    assert {"temperature": 0.7, "max_tokens": 5} == dict(model.parameters)
    assert ("search", {"q": 1}, "TimeoutError", "slow") == (
        tool.name,
        tool.arguments,
        tool.error_type,
        tool.error_message,
    )


def test_a_finished_episode_is_recorded_from_its_value(session: mttp.Session) -> None:
    """
    A trainer that has a whole batch states its times and the timing "batch".
    """
    value = mttp.Episode(
        env="e",
        group="g",
        steps=(mttp.Step(action="a", tokens=mttp.Tokens(ids=[1], logprobs=[-1.0])),),
        reward=mttp.Reward(value=1.0, components={"x": 1.0}),
    )

    handle = session.record(value, start_time=10, end_time=20, timing="batch")

    read = only(session)
    assert (10, 20, "batch", 1.0, handle.trace_id) == (
        read.start_time,
        read.end_time,
        read.timing,
        read.return_,
        read.trace_id,
    )


def calls_at(name: str, **times: int) -> tuple[Call, Call]:
    """Return a call without times, and one with these."""
    return Call(operation="chat", name=name), Call(operation="chat", name=f"{name} timed", **times)


def test_what_a_finished_episode_does_not_time_has_its_times(session: mttp.Session) -> None:
    """
    Calls of rewards, grades and steps included; times that were given stay as they are.
    """
    grade = Grade(
        name="correct",
        kind="check",
        value=1.0,
        calls=calls_at("grade", start_time=950),
        parts=(Grade(name="part", kind="check", start_time=120, end_time=130, calls=calls_at("part")),),
    )
    reward = mttp.Reward(value=1.0, grades=(grade,), calls=calls_at("reward", end_time=50))
    step = mttp.Step(index=0, agent="a", reward=1.0, rewards=(reward,), calls=calls_at("step", end_time=300))
    agent = Agent(id="b", reward=reward)
    value = mttp.Episode(env="bulk", reward=reward, steps=(step,), agents=(agent,))

    recorded = session.record(value, start_time=100, end_time=900)

    spans = [span for span in session.records() if span.trace_id == recorded.trace_id]
    times = {(span.name, span.start_time, span.end_time) for span in spans}
    given = {("chat grade timed", 950, 950), ("chat reward timed", 50, 50), ("chat step timed", 100, 300)}
    assert given | {("chat part", 120, 130), ("chat grade", 100, 900)} <= times
    assert set() == {span for span in times - given if not 100 <= span[1] <= span[2] <= 900}
    assert not [span for span in spans if "mttp.faults" in span.attributes]


@pytest.mark.parametrize("given", [-5, 2**70, "x", float("nan"), object()])
def test_an_invalid_time_is_a_fault(session: mttp.Session, given: object) -> None:
    """
    The current time is used, and the file stays readable.
    """
    with mttp.episode(start_time=given) as episode, episode.step(start_time=given):  # type: ignore[arg-type]
        pass
    session.record(mttp.Episode(env="bulk", start_time=given, end_time=given))  # type: ignore[arg-type]

    live, bulk = sorted(mttp.read(session), key=lambda episode: episode.env)

    assert (True, True) == (live.complete, bulk.complete)
    assert live.start_time is not None
    assert live.start_time > 1_700_000_000_000_000_000
    assert session.stats.faults["time_invalid"] >= 4


@pytest.mark.parametrize("given", [-1, 2**70, "x", 1.5, object()], ids=["-1", "2**70", "x", "1.5", "object"])
def test_an_invalid_index_is_a_fault(session: mttp.Session, given: object) -> None:
    """
    The step gets the next index, and later ones follow.
    """
    with mttp.episode() as episode:
        for index in (None, given, 5, None):
            with episode.step(index=index) as step:  # type: ignore[arg-type]
                step.reward(1.0)

    read = only(session)
    assert ([0, 1, 5, 6], 4.0) == ([step.index for step in read.steps], read.return_)
    assert {"index_invalid": 1} == dict(session.stats.faults)
    assert read.steps[1].faults[0].startswith("index_invalid: ")


def test_a_time_may_be_a_float(session: mttp.Session) -> None:
    """
    A common form is `time.time() * 1e9`.
    """
    session.record(mttp.Episode(), start_time=1.7e18, end_time=1.8e18)  # type: ignore[arg-type]

    assert (1_700_000_000_000_000_000, 1_800_000_000_000_000_000) == (
        only(session).start_time,
        only(session).end_time,
    )


def test_an_infinite_sum_of_rewards_is_unknown(session: mttp.Session) -> None:
    """
    Finite rewards are kept, and the return is unknown.
    """
    with mttp.episode(env="e") as episode:
        for _ in range(2):
            with episode.step() as step:
                step.reward(1e308)
        assert episode.return_ is None
        episode.reward(2.0, components={"a": 1e308, "b": 1e308}, weights={"a": 1e10, "b": 1.0})

    read = only(session)

    assert ("e", 2.0, [1e308, 1e308]) == (read.env, read.return_, [step.reward for step in read.steps])


class OnlyListed:
    """An array of a library that has only `tolist`, and no length."""

    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize("given", [OnlyListed(), range(1, 3), (number for number in (1, 2)), Tensor([1, 2])])
def test_token_ids_may_be_any_sequence(session: mttp.Session, given: object) -> None:
    """
    Everything that can be converted to a list or an array works.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.tokens(given)

    assert [1, 2] == only(session).steps[0].tokens.ids.tolist()


@pytest.mark.parametrize(
    ("outcome", "recorded"), [(True, "unknown"), (1, "unknown"), ("won", "won"), ("", "unknown")]
)
def test_an_unknown_outcome_is_a_fault(
    session: mttp.Session, outcome: Any, recorded: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The fault has the value and the valid words; it is logged once, and nothing is raised.
    """
    for _ in range(2):
        with mttp.episode() as episode:
            episode.end(outcome=outcome)
    first, _ = mttp.read(session).episodes

    assert (f"outcome_invalid: {outcome!r} is not one of success, failure, unknown",) == first.faults
    assert (recorded, {"outcome_invalid": 2}) == (first.outcome, dict(session.stats.faults))
    assert 1 == caplog.text.count("outcome_invalid")


@pytest.mark.parametrize(
    ("scoring", "total"),
    [
        ({"components": {"x": 1.0, "y": 0.5}, "weights": {"x": 2.0, "y": -1.0}}, 1.5),
        ({"components": {"x": 1.0, "y": 0.5}}, 1.5),
        ({"components": {"x": 1.0}, "weights": {"x": 0.5, "z": 3.0}}, 0.5),
        ({"components": {"x": np.float32(0.5)}, "weights": {}}, 0.5),
    ],
)
def test_the_default_total_is_the_weighted_sum(
    session: mttp.Session, scoring: dict[str, Any], total: float
) -> None:
    """
    This holds for episodes, agents, steps and late scores; default weights are 1.
    """
    with mttp.episode() as episode:
        episode.agent("a").reward(**scoring)
        with episode.step() as step:
            step.reward(**scoring)
        episode.reward(**scoring)
    mttp.score(episode, grader="late", **scoring)

    read = only(session)

    assert (total, total, total) == (read.return_, read.agents[0].return_, read.steps[0].reward)
    assert total == read.scores["late"].value
    assert ("ok", False, {}) == (read.reward.status, read.reward.mismatch, dict(session.stats.faults))


@pytest.mark.parametrize(
    ("scoring", "status", "faults"),
    [
        (
            {"components": {"x": 1.0, "y": math.nan}, "weights": {"x": 1, "y": 1}},
            "error",
            {"component_invalid"},
        ),
        ({"components": {"x": 1.0, "y": None}}, "missing", set()),
        ({"components": {"x": math.inf, "y": None}}, "error", {"component_invalid"}),
        ({"components": {"x": 1.0, "y": 0.5}, "weights": {"x": 1}}, "missing", {"weight_missing"}),
        (
            {"components": {"x": 1.0}, "weights": {"x": math.nan}},
            "missing",
            {"weight_invalid", "weight_missing"},
        ),
        (
            {"components": {"x": 1e308, "y": 1e308}, "weights": {"x": 10, "y": 10}},
            "error",
            {"reward_invalid"},
        ),
        ({}, "missing", {"reward_invalid"}),
        ({"status": "abstained"}, "abstained", set()),
        ({"components": {"x": 1.0}, "error": "judge is down"}, "error", {"reward_invalid"}),
    ],
)
def test_a_total_that_can_t_be_computed_is_missing(
    session: mttp.Session, scoring: dict[str, Any], status: str, faults: set[str]
) -> None:
    """
    A component without a valid value is not left out of the sum, and no weight is assumed.
    """
    with mttp.episode() as episode:
        episode.reward(**scoring)

    read = only(session)

    assert (None, status) == (read.return_, read.reward.status)
    assert faults == set(session.stats.faults)
    expected = ("recorded_fault", "grading_failed")
    assert {} == {id: count for id, count in mttp.check(session).ids.items() if id not in expected}


def test_a_wrong_value_is_a_fault(session: mttp.Session) -> None:
    """
    The rest of the scoring and of the token block is recorded.
    """
    with mttp.episode() as episode:
        with episode.step() as step:
            step.tokens([1])
            step.tokens([1, 2])
        episode.reward(1.0, components=[1], status="splendid")  # type: ignore[arg-type]

    read = only(session)

    assert (1.0, [1, 2]) == (read.return_, read.steps[0].tokens.ids.tolist())
    assert {
        "tokens_replaced": 1,
        "components_invalid": 1,
        "status_unknown": 1,
    } == dict(session.stats.faults)
    assert {"components_invalid", "status_unknown"} == {fault.partition(":")[0] for fault in read.faults}


@pytest.mark.parametrize(
    ("scoring", "fault"),
    [
        ({"spec": "gsm8k"}, "spec_invalid: 'gsm8k' is not an mttp.model.Spec"),
        ({"range": [1]}, "range_invalid: [1] is not a pair of numbers"),
        ({"range": (0, "x")}, "range_invalid: (0, 'x') is not a pair of numbers"),
        ({"range": 5}, "range_invalid: 5 is not a pair of numbers"),
        ({"relative": np.zeros(2)}, "relative_invalid: array([0., 0.])"),
        ({"failed_checks": 5}, "failed_checks_invalid: 5 is not a list"),
        ({"components": 5}, "components_invalid: 5 is not a mapping"),
    ],
)
def test_an_invalid_part_of_a_scoring_is_a_fault(
    session: mttp.Session, scoring: dict[str, Any], fault: str
) -> None:
    """
    The value is recorded, for steps, agents, episodes and late scores.
    """
    with mttp.episode() as episode:
        with episode.step() as step:
            step.reward(0.25, **scoring)
        episode.agent("a").reward(0.5, **scoring)
        episode.reward(1.0, **scoring)

    read = only(session)

    assert (1.0, 0.5, 0.25) == (read.return_, read.agents[0].return_, read.steps[0].reward)
    assert {fault.partition(":")[0]: 3} == dict(session.stats.faults)
    assert {"recorded_fault": 3} == mttp.check(session).ids


def test_parts_of_a_scoring_may_be_of_any_library(session: mttp.Session) -> None:
    """
    They are converted to the convention's types; a single check need not be in a list.
    """
    with mttp.episode() as episode:
        bounds = np.array([0, 1], dtype="float32")
        episode.reward(1.0, range=bounds, relative=np.bool_(True), failed_checks="format")

    reward = only(session).reward

    assert ((0.0, 1.0), True, ("format",)) == (reward.range, reward.relative, reward.failed_checks)
    assert {} == mttp.check(session).ids


def test_a_malformed_range_in_a_recording_is_ignored(session: mttp.Session) -> None:
    """
    The episode is read.
    """
    with mttp.episode() as episode:
        episode.span.set_attribute("mttp.reward.range", [1.0])
        episode.end()

    assert "completed" == only(session).status


def test_an_end_flag_that_is_an_array_is_a_fault(session: mttp.Session) -> None:
    """
    The flags of a vector environment are not one flag; the episode and its step end.
    """
    several = np.array([True, False])
    with mttp.episode() as episode:
        episode.step().end(terminated=several)  # type: ignore[arg-type]
        episode.end(terminated=several, truncated=True, outcome="success")  # type: ignore[arg-type]

    read = only(session)

    assert (None, True, "success", None) == (
        read.terminated,
        read.truncated,
        read.outcome,
        read.steps[0].terminated,
    )
    assert {"terminated_invalid": 2} == dict(session.stats.faults)


def test_metadata_that_is_not_a_mapping_is_a_fault(session: mttp.Session) -> None:
    """
    All other facts of the episode are recorded.
    """
    with mttp.episode(env="toy", metadata=5):  # type: ignore[arg-type]
        pass

    assert ("toy", {}) == ((read := only(session)).env, read.metadata)
    assert {"metadata_invalid": 1} == dict(session.stats.faults)


def test_an_episode_that_never_ends_is_counted() -> None:
    """
    It is read as unfinished, and the session counts it when it closes.
    """
    with mttp.configure(transport="memory://") as session:
        mttp.episode(env="left open").step().reward(1.0)

    (read,) = mttp.read(session).episodes
    assert ("left open", "unfinished") == (read.env, read.status)
    assert 1 == session.stats.faults["episode_never_ended"]


def test_the_repr_of_a_handle_has_its_span_and_state(session: mttp.Session) -> None:
    """
    It has the span's name and id, and whether the handle is open.
    """
    with mttp.episode(env="e") as episode:
        assert f"<OpenEpisode 'episode e' {episode.span_id}, open>" == repr(episode)

    assert repr(episode).endswith("ended>")
    assert "<OpenStep: inert>" == repr(mttp.current_step())


@pytest.mark.parametrize(
    ("facts", "run", "name"),
    [
        ({"env": "toy", "task": "math/1"}, "sweep", "episode toy"),
        ({"task": "math/1"}, "sweep", "episode math"),
        ({"task": "math/algebra/1"}, None, "episode math"),
        ({"task": "sample-00412"}, "sweep", "episode sweep"),
        ({"task": "/1"}, None, "episode"),
        ({}, "sweep", "episode sweep"),
        ({}, None, "episode"),
    ],
)
@pytest.mark.parametrize("transport", ["memory://", "file://a.jsonl"])
def test_a_root_s_name_has_low_cardinality(
    facts: dict[str, Any], run: str | None, name: str, transport: str
) -> None:
    """
    It is named by the environment, else the suite of the task, else the run; task ids are too many.
    """
    configuration.forget()
    session = mttp.configure(transport=transport, run=run)
    with session, mttp.episode(**facts) as episode, episode.step() as step:
        step.reward(1.0)
    source: Any = session if transport == "memory://" else "a.jsonl"

    assert name in {one.name for one in mttp.scan(source)}
    assert 1 == len(mttp.read(source).episodes[0].steps)


def test_a_total_with_a_failed_component_is_partial(tmp_path):
    """
    A given total is kept.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(transport=f"file://{path}"), mttp.episode() as episode:
        episode.reward(5.0, components={"x": 1.0, "y": float("nan")}, weights={"x": 1, "y": 1})
    (found,) = mttp.read(path).episodes

    assert (5.0, "partial", {"y": "error"}) == (
        found.reward.value,
        found.reward.status,
        found.reward.component_statuses,
    )
    assert 5.0 == found.return_


def test_a_reward_keeps_the_type_of_its_error(tmp_path):
    """
    An exception without a message keeps its class, and a value that is not a number has a type of its own.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(transport=f"file://{path}"):
        with mttp.episode() as episode:
            episode.reward(None, error=TimeoutError())
        with mttp.episode() as episode:
            episode.reward(float("nan"))
    raised, invalid = (episode.reward for episode in mttp.read(path).episodes)

    assert ("error", "TimeoutError") == (raised.status, raised.error_type)
    assert ("error", "invalid_value", "nan") == (invalid.status, invalid.error_type, invalid.raw)


def test_a_fault_is_logged_once_for_each_grader_and_component(caplog: pytest.LogCaptureFixture):
    """
    All are counted.
    """
    with mttp.configure(transport="memory://") as session:
        for _ in range(3):
            with mttp.episode() as opened:
                opened.reward(1.0, components={"x": math.nan, "y": math.nan})
                opened.reward(math.nan, grader="judge")
                opened.reward(math.nan, grader="other")
        for number in range(300):
            with mttp.episode() as opened:
                opened.reward(1.0, components={f"c{number}": math.nan})
    logged = [record.getMessage() for record in caplog.records]

    assert [1, 1] == [sum(f"component_invalid: {name} is nan" in line for line in logged) for name in "xy"]
    assert 1 == sum("reward_invalid: judge is nan" in line for line in logged)
    assert 1 == sum("reward_invalid: other is nan" in line for line in logged)
    assert 100 == sum("component_invalid: " in line for line in logged)
    assert (306, 6) == (
        session.stats.faults["component_invalid"],
        session.stats.faults["reward_invalid"],
    )


def test_an_exception_as_a_component_is_its_error(tmp_path: Path) -> None:
    """
    With class and message, in the summary, its JSON and `show`; it is not invalid.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}") as session:
        with mttp.episode() as computed:
            computed.reward(
                components={"judge": TimeoutError("late"), "b": 0.5}, weights={"judge": 2, "b": 1}
            )
        with mttp.episode() as given:
            given.reward(1.0, components={"judge": TimeoutError("late"), "b": 0.5})
        with mttp.episode() as failed:
            failed.reward(TimeoutError("late"))
        with mttp.episode() as episode, episode.step() as step:
            step.reward(0.5, components={"judge": KeyError("k")})
        mttp.score(episode, 0.25, components={"judge": RuntimeError("no")})
        value = mttp.Reward(value=1.0, components={"judge": OSError("gone"), "b": 1.0})  # type: ignore[dict-item]
        session.record(mttp.Episode(reward=value))

    found = mttp.read(path).episodes
    (grade,) = found[0].reward.grades
    assert ("judge", "error", "TimeoutError", "TimeoutError: late", 2.0) == (
        grade.name,
        grade.status,
        grade.error_type,
        grade.error,
        grade.weight,
    )
    whole = [found[0].reward, found[1].reward, found[2].reward, found[4].reward]
    assert [
        ("error", "judge: TimeoutError: late", "TimeoutError"),
        ("partial", None, None),
        ("error", "TimeoutError: late", "TimeoutError"),
        ("partial", None, None),
    ] == [(one.status, one.error, one.error_type) for one in whole]
    assert [{"b": 0.5}, {"judge": "error"}] == [
        found[0].reward.components,
        found[0].reward.component_statuses,
    ]
    health = [one for one in mttp.summarize(path).graders if one.component == "judge"]
    assert health == [one for one in mttp.read(path).summary().graders if one.component == "judge"]
    assert [("episode", 3, 0), ("step", 1, 0), ("late", 1, 0)] == [
        (one.scope, one.error, one.invalid) for one in health
    ]
    assert ("TimeoutError", "late", 2) == (
        health[0].failures[0].error_type,
        health[0].failures[0].message,
        health[0].failures[0].count,
    )
    assert {"judge"} == {
        finding.message.split("'")[1]
        for finding in mttp.check(path).all
        if finding.id == "grading_failed" and finding.signal_name == "grade"
    }


def test_forty_components_that_fail_are_read_back(session: mttp.Session) -> None:
    """
    Also those beyond the scoring's own span.
    """
    components: dict[str, Any] = {
        f"c-{number}": number / 64 if number % 2 else ValueError(number) for number in range(40)
    }
    with mttp.episode() as episode:
        episode.reward(1.0, components=components)

    reward = only(session).reward
    assert {
        name: value for name, value in components.items() if isinstance(value, float)
    } == reward.components
    assert {f"c-{number}": f"ValueError: {number}" for number in range(0, 40, 2)} == {
        grade.name: grade.error for grade in reward.grades
    }
