"""The path from calls to readers, by generated programs, through all transports at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace

import mttp
from mttp.codec.transitions import RowSchema
from mttp.model.values import same
from mttp.recording import OpenEpisode, configuration
from mttp.testing import OtlpReceiver

LOOKS = ("nothing", "attributes", "span_id", "child", "event", "values", "marker")
CONTENT = (
    None,
    "text",
    -3,
    [{"role": "user", "content": "hé\n\x00"}],
    {"a": [1, 2.5, None, True], "b": {"c": "d"}},
    np.arange(6, dtype=np.float32).reshape(2, 3),
    [2**63 - 1, -(2**63)],
)
TOKENS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"ids": [1, 2, 3], "logprobs": [-0.5, -0.25, -1.0]},
    {"ids": np.array([7, 2**40]), "logprobs": np.array([-0.5, -2.0], np.float32)},
    {"ids": [5], "logprobs": None, "prompt_ids": [1, 2], "tokenizer": "t"},
    {"ids": [], "logprobs": []},
)


@dataclass(frozen=True)
class Said:
    """What a program says in one step."""

    observation: int
    action: int
    tokens: int
    reward: float | None
    is_scored: bool
    has_call: bool
    look: str
    flush: bool


@dataclass(frozen=True)
class Rows:
    """Steps that have no handles: what each observes and is paid."""

    values: list[tuple[float, float]]


@dataclass(frozen=True)
class Told:
    """An episode: by whom its steps are taken, and what these say."""

    agents: int
    steps: list[Said | Rows]
    mode: str
    metadata: dict[str, int] = field(default_factory=dict)


SAID = st.builds(
    Said,
    st.integers(0, len(CONTENT) - 1),
    st.integers(0, len(CONTENT) - 1),
    st.integers(0, len(TOKENS) - 1),
    st.none() | st.floats(-100, 100),
    st.booleans(),
    st.booleans(),
    st.sampled_from(LOOKS),
    st.booleans(),
)
ROWS = st.builds(
    Rows, st.lists(st.tuples(st.floats(-9, 9, width=32), st.floats(-9, 9)), min_size=1, max_size=4)
)
TOLD = st.builds(
    Told,
    st.integers(0, 2),
    st.lists(SAID | ROWS, max_size=5),
    st.sampled_from(["auto", "auto", "packed", "spans"]),
    st.dictionaries(st.sampled_from("ab"), st.integers(-9, 9)),
)


def play(session: mttp.Session, told: Told) -> None:
    """Record an episode as the program tells it."""
    with mttp.episode(env="e", steps=told.mode, metadata=told.metadata or None) as episode:
        for number, said in enumerate(told.steps):
            if isinstance(said, Rows):
                take_rows(episode, said)
                continue
            owner = episode.agent(f"{number % told.agents}") if told.agents else episode
            with owner.step() as step:
                act(step, said)
            if said.flush:
                assert session.flush(10)


def take_rows(episode: OpenEpisode, rows: Rows) -> None:
    """Record steps without handles as environments' integrations do; as others where spans are wanted."""
    buffer = episode._open_buffer(RowSchema(np.dtype(np.float32), (1,), None), 1)
    for at, (observed, paid) in enumerate(rows.values):
        shown = np.array([observed], np.float32)
        if buffer is None:
            with episode.step() as step:
                step.observation(shown)
                step.action(at)
                step._reward_of(paid, {"speed": paid}, at=2 + at)
                step.record(terminated=False, truncated=False)
        else:
            scores = episode._scores(paid, {"speed": paid})
            buffer.rows.append((shown.tobytes(), at, paid, False, False, None, scores, 2 + at))
    if buffer is not None:
        buffer.schedule()


def act(step: Any, said: Said) -> None:
    """Say all of it, and look at the step's span in between."""
    if CONTENT[said.observation] is not None:
        step.observation(CONTENT[said.observation])
    look(step, said.look)
    if CONTENT[said.action] is not None:
        step.action(CONTENT[said.action])
    tokens = TOKENS[said.tokens]
    if tokens is not None:
        step.tokens(**tokens)
    if said.has_call:
        with step.tool_call("search", arguments={"q": 1}) as call:
            call.result("found")
    if said.reward is not None:
        step.reward(said.reward, **({"components": {"one": said.reward}} if said.is_scored else {}))


def look(step: Any, how: str) -> None:
    """Do what another library, or a user, may do to a span that is open."""
    if how == "attributes":
        assert step.span.attributes["mttp.step.index"] == step.index
    elif how == "span_id":
        assert step.span_id == f"{trace.get_current_span().get_span_context().span_id:016x}"
    elif how == "child":
        with trace.get_tracer("physics").start_as_current_span("solve"):
            pass
    elif how == "event":
        step.span.add_event("seen", {"n": 1})
    elif how == "values":
        step.span.set_attribute("mine", [1, 2])
    elif how == "marker":
        step.metric("heat", 1.5)


def expected(told: Told) -> list[tuple[Any, ...]]:
    """What is to be read of each step, by agent and index."""
    found: list[tuple[Any, ...]] = []
    counts: dict[str | None, int] = {}
    for number, said in enumerate(told.steps):
        agent = f"{number % told.agents}" if told.agents and isinstance(said, Said) else None
        for step in _steps(said):
            index = counts.get(agent, 0)
            counts[agent] = index + 1
            found.append((agent, index, *step))
    return sorted(found, key=lambda step: (step[0] or "", step[1]))


def _steps(said: Said | Rows) -> list[tuple[Any, ...]]:
    if isinstance(said, Rows):
        return [
            (np.array([observed], np.float32), at, paid, None, 0, paid, "")
            for at, (observed, paid) in enumerate(said.values)
        ]
    tokens = TOKENS[said.tokens]
    ids = None if tokens is None else np.array(tokens["ids"], np.int64).tolist()
    return [
        (
            CONTENT[said.observation],
            CONTENT[said.action],
            said.reward,
            ids,
            int(said.has_call),
            None,
            {"values": "mine", "marker": "heat"}.get(said.look, ""),
        )
    ]


def read(source: Any) -> tuple[mttp.Episode, list[tuple[Any, ...]]]:
    """The one episode that there is, and its steps as `expected` has them."""
    recording = mttp.read(source)
    assert [] == recording.problems
    (episode,) = recording.episodes
    steps = [
        (
            step.agent,
            step.index,
            step.observation,
            step.action,
            step.reward,
            None if step.tokens is None or step.tokens.ids is None else step.tokens.ids.tolist(),
            len(step.calls),
            step.rewards[-1].components.get("speed") if step.rewards else None,
            "mine" if "mine" in step.extra else "heat" if step.metrics else "",
        )
        for step in episode.steps
    ]
    return episode, sorted(steps, key=lambda step: (step[0] or "", step[1]))


def without_ids(step: mttp.Step) -> mttp.Step:
    """The step without the ids of spans, which it has only as a span."""
    return replace(step, span_id="", rewards=tuple(replace(one, span_id="") for one in step.rewards))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TOLD)
def test_a_program_is_read_back_from_every_transport(told: Told) -> None:
    """
    Steps with handles and without, of agents, with other libraries' spans, looked at, flushed in between,
    as spans, in columns and as each transport takes them: memory, a file and a collector read alike.
    """
    with TemporaryDirectory() as directory, OtlpReceiver() as receiver:
        path = Path(directory) / "a.jsonl"
        collector = mttp.Route(receiver.http_address, content=True)
        with mttp.configure(["memory://", f"file://{path}", collector]) as session:
            play(session, told)
        found = [read(source) for source in (session, path, receiver)]
        configuration.forget()

    assert not session.stats.lost
    wanted = expected(told)
    for episode, steps in found:
        assert episode.complete
        assert same(wanted, steps)
        assert told.metadata == episode.metadata
    (first, _), *others = found
    for other, _ in others:
        assert (first.span_count, first.step_count, first.length) == (
            other.span_count,
            other.step_count,
            other.length,
        )
        assert same(first.return_, other.return_)
        assert same([*map(without_ids, first.steps)], [*map(without_ids, other.steps)])
