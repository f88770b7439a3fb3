"""What is not to leave does not leave by any way: content that is off or redacted, token ids, secrets."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
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
from mttp.codec.secrets import Secrets
from mttp.errors import ConfigureError
from mttp.model.episodes import Call, Grade
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a
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


def texts(step: mttp.recording.OpenStep) -> None:
    step.observation(CANARY)
    step.action({"text": CANARY, "more": [CANARY]})


def objects(step: mttp.recording.OpenStep) -> None:
    step.observation(Printed())
    step.action([Printed()])


def arrays(step: mttp.recording.OpenStep) -> None:
    step.observation({"text": CANARY, "frame": np.zeros(3)})
    step.action((np.zeros(2), CANARY))


def raw_reward(step: mttp.recording.OpenStep) -> None:
    step.reward(CANARY)


def raw_object(step: mttp.recording.OpenStep) -> None:
    step.reward(Printed())


def scored(step: mttp.recording.OpenStep) -> None:
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


def tokens(step: mttp.recording.OpenStep) -> None:
    step.tokens(IDS, logprobs=np.zeros(3, np.float32), prompt_ids=IDS)


def listed_tokens(step: mttp.recording.OpenStep) -> None:
    step.tokens(IDS.tolist(), logprobs=[0.0, -1.0, -2.0], masks=[1, 0, 1], tokenizer="gpt2")


def no_tokens(step: mttp.recording.OpenStep) -> None:
    step.tokens(Raises(), logprobs=CANARY)


def called(step: mttp.recording.OpenStep) -> None:
    with step.tool_call("search", arguments={"query": CANARY}) as call:
        call.result([CANARY, Printed()])
    with step.model_call("qwen", parameters={"temperature": CANARY}) as call:
        raise_within(call)


def raise_within(call: Any) -> None:
    call.span.record_exception(RuntimeError(CANARY))
    call.span.set_status(StatusCode.ERROR, CANARY)


def asked(step: mttp.recording.OpenStep) -> None:
    """Ask a model about a picture, over each interface, then fail, and do what is not recorded."""
    try:
        import httpx
        import openai
    except ImportError:
        return
    token = {"token": CANARY, "logprob": -0.5, "bytes": None, "top_logprobs": []}
    function = {"name": "search", "arguments": json.dumps({"query": CANARY})}
    message = {"role": "assistant", "content": CANARY, "reasoning_content": CANARY}
    message |= {"tool_calls": [{"id": "1", "type": "function", "function": function}]}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": [token]}}
    chat = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    item = {"type": "reasoning", "id": "1", "summary": [{"type": "summary_text", "text": CANARY}]}
    response = {"id": "1", "object": "response", "created_at": 1, "model": "m", "output": [item]}

    def reply(request: Any) -> Any:
        if b"fails" in request.content:
            return httpx.Response(400, json={"error": {"message": CANARY}})
        return httpx.Response(200, json=response if "responses" in request.url.path else chat)

    transport = httpx.Client(transport=httpx.MockTransport(reply))
    client = openai.OpenAI(base_url="http://here/v1", api_key="-", http_client=transport, max_retries=0)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + CANARY * 200}}
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": CANARY}, picture]}]
    with mttp.instrument(client):
        client.chat.completions.create(model="m", messages=messages)
        client.chat.completions.create(model="m", messages=[*messages, *messages])
        client.responses.create(model="m", instructions=CANARY, input=CANARY)
        for ask in (client.chat.completions.create, client.moderations.create):
            with suppress(openai.BadRequestError):
                ask(
                    model="fails",
                    **({"input": CANARY} if "moderation" in str(ask) else {"messages": messages}),
                )
    mttp.current_episode().tool_call("search", arguments=CANARY, id="2").result(CANARY)
    step.tokens([1], logprobs=[-0.5], texts=[CANARY])


def evented(step: mttp.recording.OpenStep) -> None:
    step.span.record_exception(ValueError(CANARY), {"exception.message": CANARY})
    step.span.add_event("gen_ai.user.message", {"gen_ai.event.content": CANARY, "gen_ai.prompt": CANARY})
    step.span.add_link(step.span.get_span_context(), {"gen_ai.completion": CANARY})
    step.span.set_status(StatusCode.ERROR, CANARY)
    step.span.set_attribute("gen_ai.input.messages", json.dumps([{"role": "user", "content": CANARY}]))
    step.span.set_attribute("llm.input_messages.0.message.content", CANARY)


def numbers(step: mttp.recording.OpenStep) -> None:
    step.metric("loss", CANARY)  # type: ignore[arg-type]
    step.record(logprob=0.5, terminated=True)


def foreign(step: mttp.recording.OpenStep) -> None:
    said = {"gen_ai.output.messages": CANARY, "input.value": CANARY}
    with trace.get_tracer("other").start_as_current_span("other", attributes=said):
        raise RuntimeError(CANARY)


def failing(step: mttp.recording.OpenStep) -> None:
    raise RuntimeError(CANARY)


def late_facts(step: mttp.recording.OpenStep) -> None:
    mttp.score(step, 0.5, grader="judge", explanation=CANARY)
    mttp.score(step, Printed(), grader="judge")
    mttp.annotate(step, "comment", CANARY, explanation=CANARY)
    mttp.annotate(step, "advantage", CANARY)
    mttp.annotate(step, "steps", {"advantage": [1.0, 2.0]}, explanation=CANARY)
    mttp.annotate(step, "steps", {"advantage": [CANARY]})
    mttp.annotate(CANARY, "label", "good")
    mttp.prefer(step, CANARY, explanation=CANARY)


def judged(step: mttp.recording.OpenStep) -> None:
    message = {"role": "user", "content": CANARY}
    call = Call(operation="chat", arguments=[message], result=message, error_message=CANARY)
    failed = Grade(
        name="judge",
        kind="judge",
        status="error",
        error=CANARY,
        error_type="ValueError",
        explanation=CANARY,
        evidence={"batch": CANARY},
        calls=(call,),
    )
    step.reward(mttp.Reward(value=1.0, status="partial", grades=(failed,), calls=(call,)))


def raising_graders(step: mttp.recording.OpenStep) -> None:
    step.reward(ValueError(CANARY))
    step.reward(1.0, components={"judge": ValueError(CANARY), "other": KeyError(Printed())})


def misused(step: mttp.recording.OpenStep) -> None:
    mttp.group("g", [CANARY, Printed()], rewards=[CANARY], advantages=CANARY, ddof=CANARY)  # type: ignore[arg-type]
    mttp.update(loss=CANARY, lag=CANARY, discarded={"stale": CANARY})  # type: ignore[arg-type,list-item]
    mttp.extract({"traceparent": CANARY, "baggage": CANARY}).end()
    step.span.set_attribute("mttp.mine", CANARY)


STEPS: list[Callable[[mttp.recording.OpenStep], None]] = [
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
    asked,
    evented,
    numbers,
    foreign,
    failing,
    late_facts,
    judged,
    raising_graders,
    misused,
]


def play(acts: list[Callable[[mttp.recording.OpenStep], None]], *, packed: bool) -> None:
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
        episode.set_inputs(final=CANARY)
        episode.set_inputs(CANARY)
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


def spans_of(exporter: InMemorySpanExporter) -> bytes:
    """All that the spans say."""
    return "\n".join(span.to_json() for span in exporter.get_finished_spans()).encode()


def read(*paths: Path) -> bytes:
    """All that the files say, their arrays as arrays."""
    records = Scan([str(path) for path in paths], arrays=True)
    return "\n".join(repr(replace(one, attributes=unpacked(one.attributes))) for one in records).encode()


def everywhere(
    where: Path, acts: list[Callable[[mttp.recording.OpenStep], None]], *, packed: bool, **terms: Any
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
    acts: list[Callable[[mttp.recording.OpenStep], None]],
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


# What is left, and what is said of the rest.


def test_withheld_values_are_omissions_and_numbers_stay(tmp_path: Path) -> None:
    """
    Counts, means, log probabilities and kinds of faults are no content.
    """
    with mttp.configure("file://a.jsonl", content=False), mttp.episode() as episode, episode.step() as step:
        tokens(step)
        raw_reward(step)

    (kept,) = mttp.read("a.jsonl").episodes[0].steps
    assert kept.tokens is not None
    assert (3, 3) == (kept.tokens.count, kept.tokens.prompt_count)
    assert (None, None, [0.0, 0.0, 0.0]) == (
        kept.tokens.ids,
        kept.tokens.prompt_ids,
        kept.tokens.logprobs.tolist(),
    )
    assert (("reward_invalid",), "error", None) == (kept.faults, kept.reward_status, kept.reward_raw)
    withheld = [a.FAULTS, a.STEP_REWARD_RAW, a.TOKEN_IDS, a.TOKEN_PROMPT_IDS]
    assert [f"{key}: content is off" for key in withheld] == sorted(kept.omissions)


@pytest.mark.parametrize(
    ("content", "token_ids", "found"),
    [(False, True, (True, None)), (True, False, (False, "seen")), (True, None, (True, "seen"))],
)
def test_token_ids_have_a_switch_of_their_own(
    content: bool, token_ids: bool | None, found: tuple[bool, str | None]
) -> None:
    """
    They can be sent without other content, and other content without them.
    """
    with (
        mttp.configure(mttp.Route("file://a.jsonl", content=content, token_ids=token_ids)),
        mttp.episode() as episode,
        episode.step() as step,
    ):
        step.observation("seen")
        tokens(step)

    (kept,) = mttp.read("a.jsonl").episodes[0].steps
    assert found == (kept.tokens is not None and kept.tokens.ids is not None, kept.observation)


@pytest.mark.parametrize(
    "value",
    [
        {"tenant-pin": "4711x"},
        {"env": {"ACME_TENANT_PIN": "4711x"}},
        {"headers": {"X-Tenant-Pin": "4711x"}},
        ["train.py", "--tenant-pin", "4711x"],
        "train.py --tenant-pin 4711x",
        "TENANT_PIN=4711x train.py",
        "curl -H 'X-Tenant-Pin: 4711x'",
        '{"tenant_pin": "4711x"}',
        "https://me:4711x@example.org/a.git",
    ],
)
def test_own_names_of_secrets_are_redacted_wherever_they_stand(value: object) -> None:
    """
    In configs, environment variables, headers, command lines and git remotes; what was redacted is named.
    """
    with mttp.configure("file://a.jsonl", config={"x": value}, secret_keys=["tenant_pin"]):
        pass
    (run,) = mttp.read("a.jsonl").runs

    assert "4711x" not in Path("a.jsonl").read_text()
    (omission,) = run.omissions
    assert omission.startswith("mttp.run.config.json.x")
    assert omission.endswith(": redacted as a secret")


def test_neither_environment_nor_command_line_nor_git_remotes_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Only the commit is, whatever the address of the repository's remote.
    """
    for command in (
        "init -q",
        "remote add origin https://me:4711x@example.org/a.git",
        "-c user.name=a -c user.email=a@example.org commit -q --allow-empty -m first",
    ):
        subprocess.run(["git", *command.split()], check=True)
    monkeypatch.setenv("ACME_TENANT", "4711x")
    monkeypatch.setattr("sys.argv", ["train.py", "--tenant=4711x"])
    with mttp.configure("file://a.jsonl"):
        pass
    (run,) = mttp.read("a.jsonl").runs

    assert run.revision
    assert "4711x" not in Path("a.jsonl").read_text()


def test_a_function_that_raises_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """
    By the attribute and the error's class, not by its message.
    """
    with mttp.configure("memory://", redact=broken) as session:
        for _ in range(2):
            with mttp.episode() as episode:
                episode.final_observation(CANARY)

    assert {"redaction_failed": 2} == dict(session.stats.faults)
    assert 1 == len([line for line in caplog.messages if "mttp doctor" not in line])
    assert CANARY not in caplog.text


@pytest.mark.parametrize("terms", [{"content": False}, {"redact": starred}, {"token_ids": False}])
def test_a_process_that_joins_the_run_gives_no_more_than_its_parent(
    terms: dict[str, Any], tmp_path: Path
) -> None:
    """
    It finds the address of the transport, and content is off for it.
    """
    with mttp.configure(tmp_path / "runs", **terms):
        code = f"import mttp\nwith mttp.episode(inputs={CANARY!r}):\n    pass"
        subprocess.run([sys.executable, "-c", code], check=True)

    assert "MTTP_CONTENT" not in os.environ
    (episode,) = mttp.read(tmp_path / "runs")
    assert (None, ("mttp.inputs.json: content is off",)) == (episode.inputs, episode.omissions)


def test_the_variable_applies_without_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An argument precedes it, and what is neither true nor false is refused.
    """
    monkeypatch.setenv("MTTP_CONTENT", "false")
    for content, found in ((None, None), (True, "seen")):
        with mttp.configure("memory://", content=content) as session, mttp.episode(inputs="seen"):
            pass
        assert found == mttp.read(session).episodes[0].inputs
    monkeypatch.setenv("MTTP_CONTENT", "perhaps")

    with pytest.raises(ConfigureError, match="MTTP_CONTENT='perhaps': expected true or false"):
        mttp.configure("memory://")


# Secrets.

SECRET = "hunter2"
CONFIG = {
    "lr": 0.1,
    "api_key": SECRET,
    "max_tokens": 512,
    "eos_token": "</s>",
    "pad_token": "pad",
    "use_auth_token": True,
    "nested": [{"Authorization": f"Bearer {SECRET}", "tokenizer": "gpt2"}],
    "command": ["train.py", "--token", SECRET, f"--api-key={SECRET}", "--lr", "3"],
    "database": f"postgres://me:{SECRET}@host/db",
    "namespace": f"Namespace(hub_token='{SECRET}', max_tokens=5)",
}


def test_secrets_are_recorded_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Neither of the configuration, nor of metadata, arguments of environments, headers or variables.
    """
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"deployment.token={SECRET},team=blue")
    with mttp.configure([f"file://{tmp_path}/a.jsonl", "memory://"], config=CONFIG) as session:
        session.describe(algorithm="grpo")
        metadata = {"password": SECRET, "note": f"see https://me:{SECRET}@host", "token_count": 3}
        with mttp.episode(env="toy", env_kwargs={"api_key": SECRET}, metadata=metadata) as episode:
            with episode.step() as step:
                step.set_metadata("client_secret", {"a": SECRET})
                step.span.set_attribute("http.request.header.authorization", SECRET)
            with trace.get_tracer("other").start_as_current_span("other") as span:
                span.set_attribute("http.request.header.x-api-key", [SECRET])
            mttp.annotate(episode, "access_token", SECRET)
        mttp.update(metadata={"cookie": SECRET})
        session.flush()
        kept = repr(list(session.records()))

    assert SECRET not in kept
    assert SECRET.encode() not in (tmp_path / "a.jsonl").read_bytes()
    recording = mttp.read(tmp_path / "a.jsonl")
    (run,), (found,) = recording.runs, recording.episodes
    assert run.config == {
        **CONFIG,
        "api_key": "[redacted]",
        "nested": [{"Authorization": "[redacted]", "tokenizer": "gpt2"}],
        "command": ["train.py", "--token", "[redacted]", "--api-key=[redacted]", "--lr", "3"],
        "database": "postgres://[redacted]@host/db",
        "namespace": "Namespace(hub_token='[redacted]', max_tokens=5)",
    }
    assert {"password": "[redacted]", "note": "see https://[redacted]@host", "token_count": 3} == {
        name: found.metadata[name] for name in ("password", "note", "token_count")
    }
    config = ("api_key", "nested.0.Authorization", "command.2", "command.3", "database", "namespace")
    named = ["deployment.token", *(f"{a.RUN_CONFIG_JSON}.{name}" for name in config)]
    assert {f"{key}: redacted as a secret" for key in named} == set(run.omissions)
    named = [f"{a.METADATA}.password", f"{a.METADATA}.note", f"{a.ENV_KWARGS}.api_key"]
    assert {f"{key}: redacted as a secret" for key in named} == set(found.omissions)


@pytest.mark.parametrize(
    "value",
    [
        {"env": [{"name": "API_KEY", "value": SECRET}]},
        {"headers": [["Authorization", f"Bearer {SECRET}"], ["Accept", "*/*"]]},
        {"variables": {"PGPASSWORD": SECRET}},
        {"wandb_key": SECRET},
        {"conn_str": SECRET},
        {"slack_webhook_url": f"https://example.org/{SECRET}"},
        {"smtp_pass": SECRET},
        {"oauth": SECRET},
        f"lr: 3\npassword: {SECRET}  # of the database\n- api_key: '{SECRET}'\n",
        f'password = "a\\"{SECRET}"',
        f'{{"body": "{{\\"api_key\\": \\"{SECRET}\\"}}"}}',
        f'docker run --env="API_KEY={SECRET}" --env=PASSWORD={SECRET}',
        f"postgres://me:pa/{SECRET}@host/db",
        f"https://host.blob/x?sv=1&sig={SECRET}",
        f"https://host.s3/x?X-Amz-Signature={SECRET}",
        f"https://host/v1?key={SECRET}",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"ask with sk-proj-{SECRET * 4} and",
        f"ghp_{SECRET * 6}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJ{SECRET}.{SECRET}",
        f'os.environ["HF_TOKEN"] = "{SECRET}"',
        f"settings['site']['api_key'] = '{SECRET}'",
        f'os.environ.setdefault("HF_TOKEN", "{SECRET}")',
        ("api-key", SECRET),
        ["password", SECRET],
        [("api-key", SECRET), ("accept", "*/*")],
        f'("api-key", "{SECRET}")',
        f"['password', '{SECRET}']",
        f"(api_key: {SECRET})",
        f"user: me, password: {SECRET}",
        f"with my password: {SECRET}",
        f"API key: {SECRET}",
        f"password: |\n  {SECRET}\n  {SECRET}\nlr: 3",
        f"password := '{SECRET}'",
        f"'password' => '{SECRET}'",
        f'api_key: str = "{SECRET}"',
        f"api_key = b'{SECRET}'",
        f'api_key = """{SECRET}"""',
        f"Client(api_key=SecretStr('{SECRET}'))",
        f"export HF_TOKEN={SECRET}",
        f"ENV HF_TOKEN {SECRET}",
        f"<password>{SECRET}</password>",
        f"--api-key {SECRET}",
        f'["run", "--api-key", "{SECRET}", "--lr", "3"]',
        f"curl -H 'x-api-key: {SECRET}' https://h",
        f"curl -H 'Authorization: Bearer {SECRET}' https://h",
        f"curl -u me:{SECRET} https://h",
        f"curl --user=me:{SECRET} https://h",
        ["curl", "-u", f"me:{SECRET}"],
        {"pass": SECRET},
        {"redis_pass": SECRET},
        {"pw": SECRET},
        {"passcode": SECRET},
        {"openai": {"key": SECRET}},
        f"pass: {SECRET}",
        f"me:{SECRET}@host",
        f"me:{SECRET}@10.0.0.1:80/x",
        f"https://me%3A{SECRET}@host",
        f"postgres://me%3A{SECRET}@host",
        f"https://host/x?api%5Fkey={SECRET}",
        f"https://host/x?a=1&code={SECRET}",
        f"https://host/x?X-Amz-Credential={SECRET}",
        f"https://host/x#access_token={SECRET}",
        f"https://host/x?to=https%3A%2F%2Fme%3A{SECRET}%40h",
        f"npm_{SECRET * 6}",
        f"hf_{SECRET * 6}",
        f"r8_{SECRET * 6}",
        f"rpa_{SECRET * 6}",
        f"glpat-{SECRET * 3}",
        f"dckr_pat_{SECRET * 4}",
        f"pypi-AgEIcHlwaS5vcmc{SECRET}",
        f"github_pat_{SECRET * 4}",
    ],
)
def test_secrets_are_redacted_however_they_are_written(value: object) -> None:
    """
    In lists of names and values, YAML, quoted text, addresses, and forms that are known by how they begin.
    """
    omissions: list[str] = []

    assert SECRET not in repr(Secrets().hide("config", value, omissions))
    assert all(omission.startswith("config") for omission in omissions)
    assert omissions


@pytest.mark.parametrize(
    "value",
    [
        [["learning_rate", "3"], ["tokenizer", "gpt2"]],
        [{"name": "tokenizer", "value": "gpt2"}],
        "The token: it is the smallest unit of a text",
        "http://host:8080/path@x and http://[::1]:80/a@b",
        "https://host/x?signal=a&keys=b",
        "sk-regression-baseline-of-last-year-v2",
        "max_tokens: 512\ntokenizer: gpt2",
        "tokens: 512, max_tokens=512, token_count: many",
        "key: value, key_frames: few, monkey: a, author: me",
        "passed: all, bypass=x, pass_rate: high, first_pass=x, pass_k=x",
        "invalid token: expired",
        "the pad token: x, eos_token='</s>'",
        "docker run -u 1000:1000 python:3.11@sha256:abc",
        "mailto:me@host git@host:me/a.git ssh://git@host/x",
        "ratio 3:4@2, at 10:30@5, x = A @ B",
        "https://host/x?a=1&tokens=b&keyed=c#top",
        "hf_transfer, npm_config_registry, entry = package.auth:login",
        ["lr", "x"],
        ["a", "token"],
        {"pass_at_1": "0.5", "forward_pass": "x", "key": "x"},
        {"kl_per_token": "k3", "think_token": "think", "action_token": "act", "padding_token": "x"},
    ],
)
def test_values_that_are_none_are_kept(value: object) -> None:
    """
    Names of vocabularies, plain text, ports, and names that begin like a secret.
    """
    omissions: list[str] = []

    assert (value, []) == (Secrets().hide("config", value, omissions), omissions)


@pytest.mark.parametrize(
    "piece",
    [
        "a://b:",
        "key=",
        "\\",
        '"',
        "password=\\",
        "eyJaaaaaaaaaaaaa-",
        "- a: ",
        "a:b@",
        '("a",',
        "--a ",
        "<a>",
    ],
)
def test_a_long_text_takes_no_more_than_its_length(piece: str) -> None:
    """
    Patterns do not scan it once for each of its parts, which would take minutes.
    """
    text = piece * (300_000 // len(piece)) + " key ://@"

    assert Secrets().hide("config", text, [])


@pytest.mark.parametrize(
    ("given", "variable", "kept"),
    [
        (None, None, {"code": "a", "password": "[redacted]"}),
        (["code"], None, {"code": "[redacted]", "password": "[redacted]"}),
        (False, None, {"code": "a", "password": "b"}),
        (None, "code, x", {"code": "[redacted]", "password": "[redacted]"}),
        (None, "false", {"code": "a", "password": "b"}),
        (True, "false", {"code": "a", "password": "[redacted]"}),
    ],
)
def test_the_list_can_be_extended_and_turned_off(
    given: Any, variable: str | None, kept: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    By the argument, or else by the variable.
    """
    if variable is not None:
        monkeypatch.setenv("MTTP_SECRET_KEYS", variable)
    with mttp.configure("memory://", config={"code": "a", "password": "b"}, secret_keys=given) as session:
        pass

    assert kept == mttp.read(session).runs[0].config


def test_processes_that_are_started_find_the_list() -> None:
    """
    As long as the session is open.
    """
    with mttp.configure("memory://", secret_keys=["code", "case"]):
        during = os.environ.get("MTTP_SECRET_KEYS")

    assert ("code,case", None) == (during, os.environ.get("MTTP_SECRET_KEYS"))


@pytest.mark.parametrize("wrong", ["code", [1], [""], {"code": 1}, 3])
def test_an_invalid_list_of_names_is_refused(wrong: Any) -> None:
    """
    The message says what was given.
    """
    with pytest.raises(ConfigureError, match="is not a list of names, True or False"):
        mttp.configure("memory://", secret_keys=wrong)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("OPENAI_API_KEY", True),
        ("apiKey", True),
        ("x-api-key", True),
        ("hub_token", True),
        ("token", True),
        ("DB_PASSWORD", True),
        ("client_secret", True),
        ("pass", True),
        ("db_pw", True),
        ("login_credentials", True),
        ("backend_token", True),
        ("pass@1", False),
        ("pass_rate", False),
        ("backward_pass", False),
        ("Set-Cookie", True),
        ("aws_secret_access_key", True),
        ("tokens", False),
        ("max_tokens", False),
        ("tokenizer", False),
        ("token_count", False),
        ("gen_ai.token.type", False),
        ("pad_token", False),
        ("keyboard", False),
        ("author", False),
        ("secretary", False),
    ],
)
def test_names_are_compared_word_by_word(name: str, is_secret: bool) -> None:
    """
    In whichever way they are written.
    """
    assert is_secret is Secrets().names(name)
