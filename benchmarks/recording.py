"""
What recording costs the training loop that calls it.

An episode is one root and 8 steps unless said; a step is a reward, 256 token ids and 256 log probabilities.
Ours writes to a file with the session's own writer, at default settings. The SDK has a BatchSpanProcessor
whose queue is long enough, over an exporter that does nothing, and limits that cut nothing. Ours is given
lists or numpy arrays as they are; the SDK takes no arrays, so it is given `.tolist()` of them. It is told
what ours says of a step and of an episode by itself, five facts and twelve, but for the mean of the log
probabilities, which ours works out later; the loops of both are otherwise the same. With scalars alone the
SDK sets twelve facts and four rewards of a step in two calls, and no arrays. Blocks of 256 episodes are
recorded at full speed, and each is flushed before the next one: `caller_us` is CPU time of the recording
thread without the flush, `wall_us` the time that it takes it, writer beside it, and `total_us` all CPU time
of all threads and children, flush included.
Before its windows each records for a tenth of a second, by as many threads, and for 0.8 in the first
question and in that about threads: by then the process that helps ours has started, which a session pays
once, and each thread's first memory is there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from goals import Goal, share, times
from harness import main
from peers import PEERS, Kept, exporter, plain
from questions import Case, Environment, Question
from workload import TOKENS, Episodes, Recorder, Steps, recorded

JSON_FILE = Environment(
    "otlp-json-file",
    ("opentelemetry-exporter-otlp-json-file==0.66b1", "opentelemetry-sdk==1.45.1", "numpy>=1.26"),
)
FIGURES = {
    "caller_us": "CPU µs of the caller per step",
    "wall_us": "its wall time",
    "total_us": "CPU µs of everything, flush included",
    "peak_mb": "peak memory in MB",
}
LENGTHS = (1, 8, 1_000, 10_000)
THREADS = (1, 4, 8)
LONG = 8192
STEADY = 0.8
"""Seconds until what is done once is over."""


# Ours.


def own() -> Recorder:
    """An episode, a step, its reward, its tokens."""
    import mttp

    path = Path("own.jsonl").absolute()
    session = mttp.configure(f"file://{path}")

    def record(given: Episodes) -> None:
        for steps in given:
            with mttp.episode() as episode:
                for reward, ids, logprobs in steps:
                    with episode.step() as step:
                        step.reward(reward)
                        step.tokens(ids=ids, logprobs=logprobs)

    def flush() -> None:
        assert session.flush(60.0)

    return Recorder(record, flush, lambda: own_steps(path))


def own_steps(path: Path) -> Steps:
    """What a file of ours says."""
    import mttp

    steps = [step for episode in mttp.read(path).episodes for step in episode.steps]
    return [(step.reward or 0.0, step.tokens.ids, step.tokens.logprobs) for step in steps if step.tokens]


# The SDK.


def provider(target: Any) -> Any:
    """The SDK, with room for everything."""
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    limits = SpanLimits(max_attributes=65_536, max_events=65_536, max_links=65_536)
    made = TracerProvider(span_limits=limits)
    made.add_span_processor(BatchSpanProcessor(target, max_queue_size=65_536))
    return made


def sdk_record(tracer: Any) -> Callable[[Episodes], None]:
    """Arrays as attributes, from lists."""

    def record(given: Episodes) -> None:
        for number, steps in enumerate(given):
            with tracer.start_as_current_span("episode") as episode:
                identity, paid = _identity(episode), 0.0
                for index, (reward, ids, logprobs) in enumerate(steps):
                    with tracer.start_as_current_span("step") as step:
                        step.set_attributes(_step(identity, index, reward, len(ids)))
                        step.set_attribute("ids", ids)
                        step.set_attribute("logprobs", logprobs)
                    paid += reward
                episode.set_attributes(_episode(identity, number, len(steps), paid))

    return record


def sdk_record_arrays(tracer: Any) -> Callable[[Episodes], None]:
    """Arrays as attributes, from numpy arrays."""

    def record(given: Episodes) -> None:
        for number, steps in enumerate(given):
            with tracer.start_as_current_span("episode") as episode:
                identity, paid = _identity(episode), 0.0
                for index, (reward, ids, logprobs) in enumerate(steps):
                    with tracer.start_as_current_span("step") as step:
                        step.set_attributes(_step(identity, index, reward, len(ids)))
                        step.set_attribute("ids", ids.tolist())
                        step.set_attribute("logprobs", logprobs.tolist())
                    paid += reward
                episode.set_attributes(_episode(identity, number, len(steps), paid))

    return record


def _identity(episode: Any) -> dict[str, str]:
    """What all spans of an episode say."""
    return {"run.id": "0123456789abcdef", "episode.id": f"{episode.get_span_context().trace_id:032x}"}


def _step(identity: dict[str, str], index: int, reward: float, count: int) -> dict[str, Any]:
    """What ours says of a step without being told, and its reward."""
    return {
        **identity,
        "step.index": index,
        "reward": reward,
        "step.reward_status": "ok",
        "token.count": count,
    }


def _episode(identity: dict[str, str], index: int, length: int, paid: float) -> dict[str, Any]:
    """What ours says of an episode without being told."""
    return {
        **identity,
        "episode.index": index,
        "episode.timing": "live",
        "episode.step_count": length,
        "episode.span_count": length + 1,
        "episode.return_basis": "steps",
        "episode.status": "completed",
        "episode.outcome": "unknown",
        "episode.length": length,
        "episode.return": paid,
        "episode.step_reward_sum": paid,
    }


def sdk_record_scalars(tracer: Any) -> Callable[[Episodes], None]:
    """Twelve facts and four rewards of a step, and what is said of an episode."""

    def record(given: Episodes) -> None:
        for number, steps in enumerate(given):
            with tracer.start_as_current_span("episode") as episode:
                paid = 0.0
                for index, (reward, ids, _) in enumerate(steps):
                    with tracer.start_as_current_span("step") as step:
                        facts = {
                            "run.id": "0123456789abcdef",
                            "episode.id": "episode-7",
                            "step.index": index,
                            "step.terminated": False,
                            "policy.version": "41",
                            "step.discount": 0.99,
                            "model": "a-model",
                            "tokens.input": 512,
                            "tokens.output": len(ids),
                            "step.value": 0.5,
                            "token.count": len(ids),
                            "token.mean_logprob": -1.0,
                        }
                        step.set_attributes(facts)
                        rewards = {"reward": reward, "format": 1.0, "task": 0.5, "length": 0.0}
                        step.set_attributes(rewards)
                    paid += reward
                episode.set_attributes(_episode(_identity(episode), number, len(steps), paid))

    return record


def sdk(record: Callable[[Any], Callable[[Episodes], None]], read: Callable[[Any], Any] = plain) -> Recorder:
    """The SDK over an exporter that does nothing."""
    kept = Kept()
    made = provider(exporter(kept))
    return Recorder(record(made.get_tracer("benchmark")), made.force_flush, lambda: kept.steps(read))


def _reward(span: Any) -> tuple[Any, Any, Any]:
    return span.attributes["reward"], (), ()


def sdk_otlp() -> Recorder:
    """The SDK with the official OTLP exporter, to a receiver in another process."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from sink import Sink

    sink = Sink()
    made = provider(OTLPSpanExporter(f"{sink.address}/v1/traces"))

    def kept() -> Steps:
        found = [_message(span) for span in sink.spans() if span.name == "step"]
        sink.keep_nothing()
        return found

    return Recorder(sdk_record(made.get_tracer("benchmark")), made.force_flush, kept, (sink.pid,))


def _message(span: Any) -> tuple[Any, Any, Any]:
    found = {pair.key: pair.value for pair in span.attributes}
    ids = [item.int_value for item in found["ids"].array_value.values]
    logprobs = [item.double_value for item in found["logprobs"].array_value.values]
    return found["reward"].double_value, ids, logprobs


def sdk_file() -> Recorder:
    """The SDK with the official exporter to a file of OTLP JSON lines."""
    import json

    from opentelemetry.exporter.otlp.json.file import (  # type: ignore[import-not-found]  # the peer's alone
        FileSpanExporter,
    )

    path = Path("official.jsonl")
    made = provider(FileSpanExporter(path=str(path)))

    def kept() -> Steps:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        blocks = [
            scoped for line in lines for block in line["resourceSpans"] for scoped in block["scopeSpans"]
        ]
        return [_document(span) for scoped in blocks for span in scoped["spans"] if span["name"] == "step"]

    return Recorder(sdk_record(made.get_tracer("benchmark")), made.force_flush, kept)


def _document(span: Any) -> tuple[Any, Any, Any]:
    found = {pair["key"]: pair["value"] for pair in span["attributes"]}
    ids = [int(item["intValue"]) for item in found["ids"]["arrayValue"]["values"]]
    logprobs = [item["doubleValue"] for item in found["logprobs"]["arrayValue"]["values"]]
    return found["reward"]["doubleValue"], ids, logprobs


def rewards(steps: Any) -> bytes:
    """What steps without arrays say."""
    return b"".join(np.float64(reward).tobytes() for reward, *_ in steps)


# Questions.


def _case(make: Callable[[], Recorder], *, lists: bool = True, **more: Any) -> Case:
    return Case(recorded(make, lists=lists, **more))


_SDK, _ARRAYS = functools.partial(sdk, sdk_record), functools.partial(sdk, sdk_record_arrays)
_SCALARS = functools.partial(sdk, sdk_record_scalars, _reward)

CALLER = Question(
    f"the caller's time per step, {TOKENS} ids and logprobs",
    FIGURES,
    {
        "SDK, lists": _case(_SDK, warm_up=STEADY),
        "SDK, ndarrays": _case(_ARRAYS, lists=False, warm_up=STEADY),
        "SDK, scalars alone": Case(
            recorded(_SCALARS, lists=True, saying=rewards, warm_up=STEADY), alike=False
        ),
        "mttp, lists": _case(own, warm_up=STEADY),
        "mttp, ndarrays": _case(own, lists=False, warm_up=STEADY),
    },
    [
        Goal(
            "1", "caller's CPU time, lists: SDK with array attributes over mttp",
            times("SDK, lists", "mttp, lists", "caller_us"), 12, 15, at_least=True,
        ),
        Goal(
            "1", "caller's CPU time, ndarrays: SDK with array attributes over mttp",
            times("SDK, ndarrays", "mttp, ndarrays", "caller_us"), 25, 36, at_least=True,
        ),
        Goal(
            "1", "the same in wall time with a writer that never rests, lists",
            times("SDK, lists", "mttp, lists", "wall_us"), at_least=True,
        ),
        Goal(
            "1", "the same in wall time with a writer that never rests, ndarrays",
            times("SDK, ndarrays", "mttp, ndarrays", "wall_us"), at_least=True,
        ),
        Goal(
            "1b", "caller's CPU time, lists: mttp over SDK with scalars only",
            share("mttp, lists", "SDK, scalars alone", "caller_us"), 0.4, 0.3,
        ),
        Goal(
            "1b", "caller's CPU time, ndarrays: mttp over SDK with scalars only",
            share("mttp, ndarrays", "SDK, scalars alone", "caller_us"), 0.15, 0.1,
        ),
    ],
    own="mttp, ndarrays",
)  # fmt: skip

TOKENS_ASKED = Question(
    "the caller's time by the number of tokens, ndarrays",
    FIGURES,
    {
        "mttp, 256 tokens": _case(own, lists=False, block=64),
        f"mttp, {LONG} tokens": _case(own, lists=False, block=64, tokens=LONG),
        f"SDK, {LONG} tokens": _case(_ARRAYS, lists=False, block=8, tokens=LONG),
    },
    [
        Goal(
            "9",
            f"caller's CPU time per extra token, ndarrays, {TOKENS} to {LONG}",
            lambda get: (
                (get(f"mttp, {LONG} tokens", "caller_us") - get("mttp, 256 tokens", "caller_us"))
                / (LONG - TOKENS)
            ),
            0.01,
            unit="µs",
        )
    ],
    own="mttp, 256 tokens",
)

LENGTHS_ASKED = Question(
    "the caller's time per step, root included, by the episode's length, ndarrays",
    FIGURES,
    {
        f"{steps} step{'s' * (steps > 1)}": Case(
            recorded(own, steps=steps, block=max(2048 // steps, 1)), aside=steps == 1_000
        )
        for steps in LENGTHS
    },
    [
        Goal(
            "9",
            "caller's CPU time per step: episodes of 10,000 steps over episodes of 8",
            share("10000 steps", "8 steps", "caller_us"),
            1.2,
        )
    ],
    own="8 steps",
)

THREADS_ASKED = Question(
    "the caller's time per step by the number of threads that record, ndarrays",
    FIGURES,
    {
        f"{threads} thread{'s' * (threads > 1)}": Case(
            recorded(own, threads=threads, warm_up=STEADY, whole=True), aside=threads == 4
        )
        for threads in THREADS
    },
    [
        Goal(
            "9",
            "CPU time of the recording threads per step: 8 threads over 1",
            share("8 threads", "1 thread", "caller_us"),
            1.2,
        )
    ],
    own="1 thread",
)

_BLOCK = 64
"""Episodes that every peer's queue holds at its default length."""

_SLOW = "agent-lightning"
"""It takes ten seconds before it records anything."""

_PEERS: dict[str, Case] = {
    "SDK, OTLP exporter": _case(sdk_otlp, block=_BLOCK),
    "SDK, JSON file exporter": Case(recorded(sdk_file, lists=True, block=_BLOCK), JSON_FILE),
    **{
        name: Case(recorded(make, lists=True, block=_BLOCK), environment, thorough=name == _SLOW)
        for name, (environment, make) in PEERS.items()
    },
}

PEERS_ASKED = Question(
    f"the caller's time per step beside others, {TOKENS} ids and logprobs, lists",
    FIGURES,
    {"SDK, nothing exported": _case(_SDK, block=_BLOCK), "mttp": _case(own, block=_BLOCK), **_PEERS},
    [
        Goal("10", f"caller's CPU time: {name} over mttp", times(name, "mttp", "caller_us"), 1, at_least=True)
        for name in ("SDK, nothing exported", *_PEERS)
    ],
)

QUESTIONS = {
    "caller": CALLER,
    "tokens": TOKENS_ASKED,
    "lengths": LENGTHS_ASKED,
    "threads": THREADS_ASKED,
    "peers": PEERS_ASKED,
}

if __name__ == "__main__":
    main(QUESTIONS)
