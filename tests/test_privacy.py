"""What is not to leave does not leave, by whatever way: content that is off or redacted, token ids, and secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import mttp
from mttp.codec.profiles import unpacked
from mttp.reading.scanning import Scan
from mttp.testing import OtlpReceiver

CANARY = "Canary-51f0"
IDS = 7_351_002_117 + np.arange(3)
"""Ids that nothing else is."""


class Printed:
    """An object that prints as text that is not to leave."""

    def __repr__(self) -> str:
        return f"<{CANARY}>"


class Raises:
    """An object that says what is not to leave when it is looked at."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise ValueError(CANARY)

    def __len__(self) -> int:
        return 3


def texts(step: mttp.OpenStep) -> None:
    step.observation(CANARY)
    step.action({"text": CANARY, "more": [CANARY]})


def objects(step: mttp.OpenStep) -> None:
    step.observation(Printed())
    step.action([Printed()])


def arrays(step: mttp.OpenStep) -> None:
    step.observation({"text": CANARY, "frame": np.zeros(3)})
    step.action((np.zeros(2), CANARY))


def raw_reward(step: mttp.OpenStep) -> None:
    step.reward(CANARY)


def raw_object(step: mttp.OpenStep) -> None:
    step.reward(Printed())


def scored(step: mttp.OpenStep) -> None:
    step.reward(
        CANARY,
        components={"format": CANARY, "length": Printed()},
        weights={"format": CANARY},
        explanation=CANARY,
        error=ValueError(CANARY),
        grader="judge",
        range=CANARY,
        relative=Raises(),
        spec=CANARY,
        status=CANARY,
    )


def tokens(step: mttp.OpenStep) -> None:
    step.tokens(IDS, logprobs=np.zeros(3, np.float32), prompt_ids=IDS)


def listed_tokens(step: mttp.OpenStep) -> None:
    step.tokens(IDS.tolist(), logprobs=[0.0, -1.0, -2.0], masks=[1, 0, 1], tokenizer="gpt2")


def no_tokens(step: mttp.OpenStep) -> None:
    step.tokens(Raises(), logprobs=CANARY)


def called(step: mttp.OpenStep) -> None:
    with step.tool_call("search", arguments={"query": CANARY}) as call:
        call.result([CANARY, Printed()])
    with step.model_call("qwen", parameters={"temperature": CANARY}) as call:
        raise_within(call)


def raise_within(call: Any) -> None:
    call.span.record_exception(RuntimeError(CANARY))
    call.span.set_status(StatusCode.ERROR, CANARY)


def evented(step: mttp.OpenStep) -> None:
    step.span.record_exception(ValueError(CANARY), {"exception.message": CANARY})
    step.span.add_event("gen_ai.user.message", {"gen_ai.event.content": CANARY, "gen_ai.prompt": CANARY})
    step.span.add_link(step.span.get_span_context(), {"gen_ai.completion": CANARY})
    step.span.set_status(StatusCode.ERROR, CANARY)
    step.span.set_attribute("gen_ai.input.messages", json.dumps([{"role": "user", "content": CANARY}]))
    step.span.set_attribute("llm.input_messages.0.message.content", CANARY)


def numbers(step: mttp.OpenStep) -> None:
    step.metric("loss", CANARY)  # type: ignore[arg-type]
    step.record(logprob=0.5, terminated=True)


def foreign(step: mttp.OpenStep) -> None:
    with pytest.raises(KeyError), trace.get_tracer("other").start_as_current_span("other") as span:
        span.set_attribute("gen_ai.output.messages", CANARY)
        span.set_attribute("input.value", CANARY)
        raise KeyError(CANARY)


def failing(step: mttp.OpenStep) -> None:
    raise RuntimeError(CANARY)


def late_facts(step: mttp.OpenStep) -> None:
    mttp.score(step, 0.5, grader="judge", explanation=CANARY)
    mttp.score(step, Printed(), grader="judge")
    mttp.annotate(step, "comment", CANARY, explanation=CANARY)
    mttp.annotate(step, "advantage", CANARY)
    mttp.annotate(step, "steps", {"advantage": [1.0, 2.0]}, explanation=CANARY)
    mttp.annotate(step, "steps", {"advantage": [CANARY]})
    mttp.annotate(CANARY, "label", "good")
    mttp.prefer(step, CANARY, explanation=CANARY)


def misused(step: mttp.OpenStep) -> None:
    mttp.group("g", [CANARY, Printed()], rewards=[CANARY], advantages=CANARY, ddof=CANARY)  # type: ignore[arg-type]
    mttp.update(loss=CANARY, lag=CANARY, discarded={"stale": CANARY})  # type: ignore[arg-type,list-item]
    mttp.extract({"traceparent": CANARY, "baggage": CANARY}).end()
    step.span.set_attribute("mttp.mine", CANARY)


STEPS: list[Callable[[mttp.OpenStep], None]] = [
    texts,
    objects,
    arrays,
    raw_reward,
    raw_object,
    scored,
    tokens,
    listed_tokens,
    no_tokens,
    called,
    evented,
    numbers,
    foreign,
    failing,
    late_facts,
    misused,
]


def play(acts: list[Callable[[mttp.OpenStep], None]], *, packed: bool) -> None:
    """Record an episode in which text is put wherever content may be, and one within a part elsewhere."""
    with mttp.episode(
        env="toy",
        inputs={"question": CANARY},
        env_kwargs={"prompt": CANARY},
        steps="packed" if packed else "spans",
        seed=1,
    ) as episode:
        agent = episode.agent("white")
        for player in (episode, agent):
            for act in acts:
                with suppressed(), player.step() as step:
                    act(step)
        with mttp.extract(mttp.inject()) as part, part.step() as step, suppressed():
            for act in acts:
                act(step)
        agent.reward(CANARY, explanation=CANARY)
        episode.final_observation(CANARY)
        episode.reward(Printed(), explanation=CANARY, error=CANARY)
    value = mttp.Episode(
        error_type="ValueError",
        error_message=CANARY,
        faults=(f"reward_invalid: {CANARY}", CANARY),
        steps=(
            mttp.Step(observation=CANARY, reward_raw=CANARY, reward_status="error", error_message=CANARY),
        ),
        reward=mttp.Reward(
            status="error", raw=CANARY, error=CANARY, explanation=CANARY, evidence={"said": CANARY}
        ),
        extra={"gen_ai.system_instructions": CANARY, "traceloop.entity.output": CANARY},
    )
    session = mttp.current_session()
    assert session is not None
    session.record(value)


class suppressed:  # noqa: N801 - as contextlib names its own
    """What the user's own loop would catch."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is RuntimeError


def holds(found: bytes) -> bool:
    """Whether the text, or an id, is somewhere in these bytes, in any form."""
    ids = [int(one) for one in IDS]
    forms = [
        CANARY.encode(),
        *(str(one).encode() for one in ids),
        *(one.to_bytes(8, "little") for one in ids),
    ]
    return any(form in found for form in forms)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as opened:
        yield opened


def spans_of(exporter: InMemorySpanExporter) -> bytes:
    """All that the spans say."""
    return "\n".join(span.to_json() for span in exporter.get_finished_spans()).encode()


def read(*paths: Path) -> bytes:
    """All that the files say, their arrays as arrays."""
    records = Scan([str(path) for path in paths], arrays=True)
    return "\n".join(repr(replace(one, attributes=unpacked(one.attributes))) for one in records).encode()


def everywhere(
    where: Path, acts: list[Callable[[mttp.OpenStep], None]], *, packed: bool, **terms: Any
) -> dict[str, bytes]:
    """What left by each way, under these terms."""
    exporter, processed, reader = InMemorySpanExporter(), InMemorySpanExporter(), InMemoryMetricReader()
    handler, lines = logging.Handler(), list[str]()
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    logging.getLogger("mttp").addHandler(handler)
    try:
        with OtlpReceiver() as receiver:
            with mttp.configure(
                [
                    f"file://{where}/a.jsonl",
                    "memory://",
                    receiver.http_address,
                    f"mttp+file://{where}/m.jsonl",
                ],
                exporters=[exporter],
                processors=[SimpleSpanProcessor(processed)],
                config={"system_prompt": CANARY, "object": Printed()},
                meter_provider=MeterProvider([reader]),
                **terms,
            ) as session:
                play(acts, packed=packed)
                memory = repr(list(session.records())).encode()
            received = repr(list(receiver.records())).encode()
    finally:
        logging.getLogger("mttp").removeHandler(handler)
    return {
        "read": read(where / "a.jsonl", where / "m.jsonl"),
        "file": (where / "a.jsonl").read_bytes(),
        "messages": (where / "m.jsonl").read_bytes(),
        "memory": memory,
        "otlp": received,
        "exporter": spans_of(exporter),
        "processor": spans_of(processed),
        "log": "\n".join(lines).encode(),
        "metrics": repr(reader.get_metrics_data()).encode(),
    }


def starred(key: str, value: Any) -> Any:
    """The value as JSON without what is not to leave; nothing of what no JSON can hold."""
    if isinstance(value, np.ndarray):
        return np.zeros_like(value)
    return json.loads(json.dumps(value).replace(CANARY, "*"))


def broken(key: str, value: Any) -> Any:
    """Raises what is not to leave."""
    raise ValueError(f"{key}: {value!r}")


@pytest.mark.parametrize(
    "terms",
    [{"content": False}, {"redact": starred}, {"redact": broken}, {"content": False, "redact": broken}],
)
@pytest.mark.parametrize("packed", [False, True])
def test_nothing_leaves_by_any_way(terms: dict[str, Any], packed: bool, tmp_path: Path) -> None:
    """
    Through no transport, no span processor, no metric and no line of the log.
    """
    left = everywhere(tmp_path, STEPS, packed=packed, **{"content": True, **terms})

    assert [] == [way for way, found in left.items() if holds(found)]
    assert all(left[way] for way in ("file", "messages", "otlp", "exporter", "processor", "log"))


def test_with_content_on_all_of_it_leaves(tmp_path: Path) -> None:
    """
    The test above looks where text and ids are.
    """
    left = everywhere(tmp_path, STEPS, packed=False, content=True)

    assert {"read", "file", "messages", "memory", "otlp", "exporter", "processor", "log"} == {
        way for way, found in left.items() if CANARY.encode() in found
    }
    assert {"read", "memory", "otlp", "exporter", "processor"} <= {
        way for way, found in left.items() if str(IDS[0]).encode() in found
    }


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    acts=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5), packed=st.booleans(), redacts=st.booleans()
)
def test_nothing_leaves_whatever_is_recorded(
    acts: list[Callable[[mttp.OpenStep], None]],
    packed: bool,
    redacts: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """
    In any order and combination.
    """
    terms: dict[str, Any] = {"content": True, "redact": starred} if redacts else {"content": False}
    left = everywhere(tmp_path_factory.mktemp("ways"), acts, packed=packed, **terms)

    assert [] == [way for way, found in left.items() if holds(found)]
