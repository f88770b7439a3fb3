"""One episode that uses every part of the vocabulary, and strategies that make others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mttp import Episode, Reward, Step, Tokens
from mttp.codec.secrets import USUAL
from mttp.model import Agent, Call, Grade, Spec
from mttp.model.keys import name_key

START = 1_750_000_000_000_000_000
END = START + 5_000_000_000

EVERYTHING = Episode(
    id="episode-7",
    index=7,
    attempt=1,
    env="toy-math",
    env_version="2",
    env_index=3,
    env_kwargs={"level": 3, "names": ["a", "ü"], "nested": {"x": None, "y": [1.5, True]}},
    env_spaces={"observation": {"type": "Text"}, "action": {"type": "Text"}},
    env_wrappers=("TimeLimit", "OrderEnforcing"),
    env_rng_sha256="ab" * 32,
    task="train/17",
    split="train",
    slices=["algebra", "日本"],
    group="g1",
    seed=3,
    policy="tiny@4",
    policy_version_start="4",
    policy_version_end="5",
    policy_update_index=40,
    inputs={"answer": "4", "state": {"board": [[0, 1], [2, 3]], "big": 2**70, "float": 0.1}},
    metadata={"teacher": "none", "numbers": [1, 2.5, True, None, "x"], "nested": {"a": {"b": [b"\x00\xff"]}}},
    metrics={"searches": 2.0, "nan": float("nan"), "tiny": 5e-324},
    status="completed",
    outcome="success",
    stop_reason="answered",
    terminated=True,
    truncated=False,
    return_=0.9,
    return_basis="episode",
    step_reward_sum=0.25,
    discount=0.99,
    advantage=-0.5,
    length=12,
    step_count=5,
    final_observation=np.arange(6, dtype=np.float32).reshape(2, 3),
    final_value=0.125,
    cost_usd=0.0042,
    timing="batch",
    steps=(
        Step(
            index=0,
            observation="2+2=?",
            action="<answer>4</answer>",
            reward=0.25,
            trained_reward=0.5,
            terminated=False,
            truncated=False,
            value_estimate=0.1,
            return_target=0.2,
            advantage=0.1,
            logprob=-1.5,
            frame="data:image/png;base64,iVBORw0KGgo=",
            tokens=Tokens(
                ids=[11, 12, 2**31],
                prompt_ids=[1, 2],
                logprobs=[-0.1, -0.2, -0.3],
                trainer_logprobs=np.array([-0.1, -0.2, float("nan")], np.float32),
                ref_logprobs=[-1.0, float("-inf"), -3.0],
                masks=[1, 0, 1],
                advantages=[1.0, 2.0],
                rewards=[0.0, 0.0, 1.0],
                entropies=[0.5, 0.25, 0.125],
                values=[1.0, 2.0, 3.0, 4.0, 5.0],
                loss_weights=[1.0, 0.0, 1.0],
                parent=(0, 2),
                tokenizer="tiny",
                template_sha256="cd" * 32,
                logprob_basis="raw",
                policy_version="4",
            ),
            rewards=(Reward(value=0.25, grader="shaper", grader_kind="shaping", components={"close": 0.25}),),
            calls=(
                Call(
                    operation="chat",
                    name="tiny",
                    provider="local",
                    id="resp-1",
                    parameters={"temperature": 0.7, "max_tokens": 64, "seed": 1},
                    response_model="tiny-4",
                    finish_reasons=("stop",),
                    input_tokens=2,
                    output_tokens=3,
                    time_to_first_chunk=0.25,
                ),
                Call(
                    operation="execute_tool",
                    name="search",
                    id="call-1",
                    arguments={"query": "2+2", "top": 3},
                    result=["4", {"score": 0.5}],
                    error_type="TimeoutError",
                    error_message="too slow",
                ),
            ),
            metrics={"latency": 0.5},
            metadata={"note": "first"},
        ),
        Step(
            index=1,
            observation=np.array([[1, 2], [3, 4]], np.uint8),
            action=3,
            reward_status="error",
            reward_raw="nan",
            error_type="ValueError",
            error_message="bad reward",
            faults=("reward_invalid: nan",),
        ),
        Step(
            index=2,
            observation={"text": "hi", "grid": [[1, 2], [3, 4]], "mask": None},
            action=[0.5, -0.5],
            reward_status="abstained",
            tokens=Tokens(count=9000, omitted_reason="too long"),
        ),
        Step(
            index=3,
            agent="player_0",
            action="e4",
            reward=-1.0,
            rewards=(Reward(value=-1.0, grader="referee", components={"mate": -1.0}),),
            calls=(Call(operation="chat", name="tiny"),),
        ),
        Step(index=3, agent="日本 1", reward=1.0, terminated=True),
    ),
    agents=(
        Agent(
            id="player_0",
            name="White",
            policy="tiny@4",
            policy_version_start="4",
            policy_version_end="5",
            return_=-1.0,
            length=7,
            terminated=True,
            truncated=False,
            advantage=-0.5,
            metrics={"blunders": 2.0},
            metadata={"colour": "white", "openings": ["e4"]},
            error_type="ValueError",
            error_message="illegal move",
            faults=("reward_invalid: nan",),
        ),
        Agent(
            id="日本 1",
            return_=0.5,
            length=1,
            terminated=True,
            reward=Reward(value=0.5, grader="judge", components={f"part_{i}": 0.0 for i in range(40)}),
            rewards=(
                Reward(status="abstained"),
                Reward(value=0.5, grader="judge", components={f"part_{i}": 0.0 for i in range(40)}),
            ),
        ),
    ),
    reward=Reward(value=0.9, components={"correct": 1.0, "format": 0.5}),
    rewards=(
        Reward(status="abstained", grader="judge", grader_kind="judge", relative=True),
        Reward(
            value=1.0,
            components={"answer": 1.0, "no-leak": 1.0, "style": 0.5},
            component_statuses={"taste": "error"},
            weights={"answer": 0.75, "style": 0.5, "taste": 0.25},
            spec=Spec(name="graded", version="1.0.0"),
            clipped=True,
            evidence={"taste": {"group": "ab" * 32, "order": [1, 0], "seed": None}},
            grades=(
                Grade(
                    name="answer",
                    kind="verifier",
                    value=1.0,
                    weight=0.75,
                    contribution=0.75,
                    verdict="pass",
                    range=(0.0, 1.0),
                    clipped=True,
                    evidence={"expected": "4", "found": ["4", 4.0]},
                ),
                Grade(name="no-leak", kind="check", value=1.0, verdict="pass"),
                Grade(
                    name="style",
                    kind="rubric",
                    value=0.5,
                    weight=0.5,
                    contribution=0.25,
                    late=True,
                    repeats=(0.25, 0.5, 0.75),
                    spread=0.25,
                    label="middling",
                    explanation="日本",
                    parts=(
                        Grade(name="length", kind="penalty", value=0.5, weight=1.0, contribution=-0.5),
                        Grade(
                            name="words",
                            kind="rubric",
                            value=1.0,
                            weight=1.0,
                            parts=(Grade(name="nouns", kind="rubric", value=1.0),),
                        ),
                    ),
                ),
                Grade(
                    name="taste",
                    kind="judge",
                    status="error",
                    error="no",
                    weight=0.25,
                    relative=True,
                    calls=(
                        Call(operation="chat", name="critic", provider="openai", output_tokens=2),
                        Call(operation="chat", name="critic", error_type="RateLimitError"),
                    ),
                ),
            ),
            calls=(Call(operation="execute_tool", name="search", arguments={"q": "4"}, result=["4"]),),
        ),
        Reward(
            value=0.9,
            components={"correct": 1.0, "format": 0.5, **{f"part_{i}": 0.0 for i in range(40)}},
            component_statuses={"judge": "error", "style": "missing"},
            weights={"correct": 0.8, "format": 0.2, "part_39": 0.0},
            range=(0.0, 1.0),
            verdict="pass",
            failed_checks=("leak",),
            spec=Spec(
                name="math", version="1.2.0", sha256="ef" * 32, code_sha256="01" * 32, code_coverage="full"
            ),
            grader="math-grader",
            grader_kind="verifier",
            grader_version="3",
            label="good",
            explanation="it is four",
        ),
    ),
    start_time=START,
    end_time=END,
)
"""Whatever can be said about an episode, said once. `reward` is the last of `rewards`."""


def _is_shown(name: str) -> bool:
    """Whether a value of this name is recorded: those of secrets are redacted."""
    return not USUAL.names(name)


names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=1, max_size=12).filter(_is_shown)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
int64s = st.integers(-(2**63), 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(texts, st.booleans(), int64s, st.floats(), st.binary(max_size=20))
plain = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts.filter(_is_shown), inner, max_size=4),
    max_leaves=12,
)
arrays = hnp.arrays(
    dtype=st.sampled_from(["f4", "f8", "i1", "i4", "i8", "u1", "u4", "?"]),
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
)
contents = st.none() | plain.filter(lambda value: value is not None) | arrays


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The value, or nothing."""
    return st.none() | strategy


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    """A block whose arrays fit."""
    length = draw(st.integers(0, 6))
    floats = st.lists(st.floats(width=32), min_size=length, max_size=length)
    return Tokens(
        ids=draw(st.lists(int64s, min_size=length, max_size=length)),
        prompt_ids=draw(optional(st.lists(int64s, max_size=5))),
        logprobs=draw(optional(floats)),
        values=draw(optional(floats.map(lambda items: np.array(items, np.float32)))),
        masks=draw(optional(st.lists(st.integers(0, 1), min_size=length, max_size=length))),
        parent=draw(optional(st.tuples(st.integers(0, 9), st.integers(0, 99)))),
        tokenizer=draw(optional(texts)),
    )


@st.composite
def rewards(draw: st.DrawFn) -> Reward:
    """A scoring that says nothing impossible."""
    parts = st.tuples(texts.filter(bool), finite)
    components = dict(draw(st.lists(parts, unique_by=lambda one: name_key(one[0]), max_size=40)))
    value = draw(optional(finite))
    kinds = draw(st.lists(st.sampled_from(["rubric", "penalty"]), max_size=len(components)))
    grades = [
        Grade(name=name, kind=kind, value=components[name], weight=1.0, evidence=draw(optional(texts)))
        for name, kind in zip(sorted(components), kinds, strict=False)
    ]
    return Reward(
        value=value,
        grades=tuple(grades),
        clipped=draw(st.booleans()),
        status="ok" if value is not None else draw(st.sampled_from(["error", "abstained", "missing"])),
        components=components,
        weights=dict.fromkeys(components, 1.0),
        error=draw(optional(texts)),
        failed_checks=tuple(draw(st.lists(texts, max_size=3))),
        spec=draw(optional(st.builds(Spec, name=texts, version=optional(texts)))),
        relative=draw(optional(st.booleans())),
        explanation=draw(optional(texts)),
    )


def summed(paid: Sequence[float]) -> float | None:
    """The sum, where there is one that a float holds."""
    try:
        return math.fsum(paid) if paid else None
    except OverflowError:
        return None


@st.composite
def agents(draw: st.DrawFn, id: str, played: Sequence[Step]) -> Agent:
    """An agent that says nothing impossible, and of its length and return what its steps and scorings say."""
    scorings = tuple(draw(st.lists(rewards(), max_size=2)))
    is_total = bool(scorings) and scorings[-1].status in ("ok", "error")
    paid = [step.reward for step in played if step.reward is not None]
    ends = [draw(optional(st.booleans())), *(step.terminated for step in reversed(played))]
    return Agent(
        id=id,
        name=draw(optional(texts)),
        policy=draw(optional(texts)),
        return_=scorings[-1].value if is_total else summed(paid),
        length=len(played),
        terminated=next((end for end in ends if end is not None), None),
        advantage=draw(optional(finite)),
        reward=scorings[-1] if scorings else Reward(),
        rewards=scorings,
        metrics=draw(st.dictionaries(names, st.floats(), max_size=2)),
        metadata=draw(st.dictionaries(names, plain, max_size=2)),
    )


@st.composite
def steps(draw: st.DrawFn, index: int, agent: str | None) -> Step:
    """A step that says nothing impossible."""
    return Step(
        index=index,
        agent=agent,
        observation=draw(contents),
        action=draw(contents),
        reward=draw(optional(finite)),
        terminated=draw(optional(st.booleans())),
        logprob=draw(optional(finite)),
        tokens=draw(optional(tokens())),
        rewards=tuple(draw(st.lists(rewards(), max_size=1))),
        metrics=draw(st.dictionaries(names, st.floats(), max_size=3)),
        metadata=draw(st.dictionaries(names, plain, max_size=3)),
    )


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """An episode that says nothing impossible."""
    ids = draw(st.lists(texts, max_size=2, unique=True))
    players = draw(st.lists(st.sampled_from([None, *ids]), max_size=3))
    members = tuple(draw(steps(index, agent)) for index, agent in enumerate(players))
    return Episode(
        env=draw(texts),
        task=draw(optional(texts)),
        group=draw(optional(texts)),
        slices=draw(st.lists(texts, max_size=3)),
        seed=draw(optional(st.integers())),
        policy=draw(optional(texts)),
        inputs=draw(
            optional(st.dictionaries(texts, finite | texts | st.booleans() | st.integers(), max_size=3))
        ),
        metadata=draw(st.dictionaries(names, plain, max_size=3)),
        metrics=draw(st.dictionaries(names, st.floats(), max_size=3)),
        outcome=draw(st.sampled_from(["success", "failure", "unknown"])),
        terminated=draw(optional(st.booleans())),
        truncated=draw(optional(st.booleans())),
        final_observation=draw(contents),
        steps=members,
        agents=tuple(draw(agents(id, [step for step in members if step.agent == id])) for id in ids),
        length=len(members),
        rewards=tuple(draw(st.lists(rewards(), max_size=2))),
        start_time=START,
        end_time=END,
    )
