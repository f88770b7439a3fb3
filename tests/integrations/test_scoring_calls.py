"""Model calls while a reward is computed: children of the grade, and never steps of the policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

openai = pytest.importorskip("openai")

from integrations.models import QUESTION, serving  # noqa: E402
from integrations.specimen import only  # noqa: E402
from shown import blocks  # noqa: E402

import mttp  # noqa: E402

SAMPLE = {"completion": "four"}


@pytest.fixture
def address() -> Iterator[str]:
    """Serve the model and return its address."""
    with serving() as served:
        yield served


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    """Return an instrumented client."""
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as opened, mttp.instrument(opened):
        yield opened


@pytest.fixture
def async_client(address: str) -> Iterator[Any]:
    """Return an instrumented asynchronous client."""
    opened = openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0)
    with mttp.instrument(opened):
        yield opened


def asked(client: Any, model: str = "critic", **more: Any) -> float:
    """Return the model's response as a number."""
    return float(
        client.chat.completions.create(model=model, messages=QUESTION, **more).choices[0].message.content
    )


async def asked_async(client: Any) -> float:
    """Return the model's response as a number, awaited."""
    answer = await client.chat.completions.create(model="critic", messages=QUESTION)
    return float(answer.choices[0].message.content)


def plays(client: Any) -> None:
    """Record the policy's one step."""
    asked(client, "policy")


def spec_of(component: Any, **more: Any) -> mttp.RewardSpec:
    """Return a spec with one component."""
    return mttp.RewardSpec(name="judged", version="1.0.0", components=[component], **more)


def check_steps_and_calls(session: mttp.Session, calls: int = 1) -> mttp.Episode:
    """
    Check that the episode has only the policy's step, and so many calls below the one grade of its scoring.
    """
    episode = only(session)
    (grade,) = episode.reward.grades
    assert [["policy"]] == [[call.name for call in step.calls] for step in episode.steps]
    assert [("critic", 11, 2)] * calls == [
        (call.name, call.input_tokens, call.output_tokens) for call in grade.calls
    ]
    assert (True, ()) == (episode.complete, episode.faults)
    return episode


SCORINGS: dict[str, Callable[[mttp.RewardSpec], Any]] = {
    "score": lambda spec: spec.score(SAMPLE),
    "ascore": lambda spec: asyncio.run(spec.ascore(SAMPLE)),
    "score_batch": lambda spec: spec.score_batch([SAMPLE, SAMPLE])[1],
    "threads": lambda spec: spec.score_batch([SAMPLE, SAMPLE, SAMPLE], concurrency=3)[2],
    "rank": lambda spec: spec.rank([SAMPLE, SAMPLE]).results[1],
}


@pytest.mark.parametrize("kind", ["judge", "verifier", "rubric"])
@pytest.mark.parametrize("score", SCORINGS.values(), ids=SCORINGS)
@pytest.mark.parametrize("when", ["inside", "outside"])
def test_a_call_of_a_component_is_its_grade_s(
    session: mttp.Session, client: Any, score: Any, kind: str, when: str
) -> None:
    """
    Whether the spec scores inside the episode or before it.
    """
    made = {"judge": mttp.rewards.judge, "verifier": mttp.rewards.verifier, "rubric": mttp.rewards.rubric}[
        kind
    ]

    @made(range=(0, 10))
    def graded(completion: str) -> float:
        return asked(client)

    spec = spec_of(graded)
    before = score(spec) if when == "outside" else None
    with mttp.episode() as episode:
        plays(client)
        episode.reward(before or score(spec))

    check_steps_and_calls(session)
    assert [] == list(mttp.check(session))


@pytest.mark.parametrize("score", [SCORINGS[name] for name in ("score", "ascore", "score_batch", "threads")])
def test_a_call_of_an_asynchronous_judge_is_its_grade_s(
    session: mttp.Session, client: Any, async_client: Any, score: Any
) -> None:
    """
    Awaited on the caller's loop, or on that of the reward specs.
    """

    @mttp.rewards.judge(range=(0, 10))
    async def graded(completion: str) -> float:
        return await asked_async(async_client)

    with mttp.episode() as episode:
        plays(client)
        episode.reward(score(spec_of(graded)))

    check_steps_and_calls(session)


def test_calls_of_all_repeats_are_the_grade_s(session: mttp.Session, client: Any) -> None:
    """
    A judge with three repeats has three calls.
    """

    @mttp.rewards.judge(range=(0, 10), repeats=3)
    def graded(completion: str) -> float:
        return asked(client)

    with mttp.episode() as episode:
        plays(client)
        episode.reward(spec_of(graded).score(SAMPLE))

    check_steps_and_calls(session, calls=3)


def test_a_call_for_many_samples_is_the_first_one_s(session: mttp.Session, client: Any) -> None:
    """
    It is recorded once, so that its tokens are counted once.
    """

    @mttp.rewards.judge(range=(0, 10), relative=True)
    def graded(completions: list[str]) -> list[float]:
        return [asked(client)] * len(completions)

    ranking = spec_of(graded).rank([SAMPLE, SAMPLE, SAMPLE])

    assert [1, 0, 0] == [len(result.components["graded"].calls) for result in ranking.results]


def test_a_call_that_fails_is_on_the_grade_in_error(session: mttp.Session, client: Any) -> None:
    """
    The call and the grade have the error.
    """

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        return asked(client, "broken")

    with mttp.episode() as episode:
        episode.reward(spec_of(graded).score(SAMPLE))

    (grade,) = only(session).reward.grades
    assert ("error", "BadRequestError") == (grade.status, grade.error_type)
    assert ["openai.BadRequestError"] == [call.error_type for call in grade.calls]


@pytest.mark.parametrize("is_read", [True, False])
def test_a_stream_of_a_judge_is_its_grade_s(session: mttp.Session, client: Any, is_read: bool) -> None:
    """
    Also if the judge does not read it to its end.
    """

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        stream = client.chat.completions.create(model="critic", messages=QUESTION, stream=True)
        for _ in stream:
            if not is_read:
                break
        return 4.0

    with mttp.episode() as episode:
        plays(client)
        episode.reward(spec_of(graded).score(SAMPLE))

    (grade,) = only(session).reward.grades
    assert [("critic", ("stop",) if is_read else ())] == [(c.name, c.finish_reasons) for c in grade.calls]
    assert 1 == len(only(session).steps)


def test_a_step_that_is_scored_has_no_call_of_the_judge(session: mttp.Session, client: Any) -> None:
    """
    The policy's call is the step's, the judge's is below the step's scoring.
    """

    @mttp.rewards.judge(range=(0, 10), scope="step")
    def graded(completion: str) -> float:
        return asked(client)

    with mttp.episode(), mttp.step() as step:
        plays(client)
        step.reward(spec_of(graded).score_step(SAMPLE))

    (recorded,) = only(session).steps
    assert ["policy"] == [call.name for call in recorded.calls]
    assert ["critic"] == [call.name for call in recorded.rewards[0].grades[0].calls]


APART = """
import openai

import mttp

client = openai.OpenAI(base_url={address!r}, api_key="none", max_retries=0)
mttp.instrument(client)


def graded(completion):
    messages = [{{"role": "user", "content": completion}}]
    return float(client.chat.completions.create(model="critic", messages=messages).choices[0].message.content)
"""


def test_a_call_in_a_worker_is_its_grade_s(
    session: mttp.Session, client: Any, address: str, tmp_path: Path
) -> None:
    """
    With `isolation: process`, and a client that the component's module instruments.
    """
    (tmp_path / "asking.py").write_text(APART.format(address=address))
    file = tmp_path / "spec.yaml"
    file.write_text(
        "mttp: reward-spec/1\nname: apart\nversion: 1.0.0\ninputs: {completion: any}\ncomponents:\n"
        "  - {name: graded, kind: judge, use: 'asking:graded', range: [0, 10], isolation: process}\n"
    )
    spec = mttp.RewardSpec.load(file)

    with mttp.episode() as episode:
        plays(client)
        episode.reward(spec.score(SAMPLE))

    check_steps_and_calls(session)


def test_an_included_spec_s_calls_are_its_parts(
    session: mttp.Session, client: Any, address: str, tmp_path: Path
) -> None:
    """
    The call is below the grade of the component that made it.
    """
    (tmp_path / "asking.py").write_text(APART.format(address=address))
    head = "mttp: reward-spec/1\nversion: 1.0.0\ninputs: {completion: any}\n"
    (tmp_path / "inner.yaml").write_text(
        f"{head}name: inner\ncomponents:\n"
        "  - {name: graded, kind: judge, use: 'asking:graded', range: [0, 10]}\n"
    )
    (tmp_path / "outer.yaml").write_text(
        f"{head}name: outer\ninclude:\n  - {{spec: inner.yaml, as: inner, weight: 1}}\n"
    )

    with mttp.episode() as episode:
        plays(client)
        episode.reward(mttp.RewardSpec.load(tmp_path / "outer.yaml").score(SAMPLE))

    (grade,) = only(session).reward.grades
    assert (0, ["critic"]) == (len(grade.calls), [call.name for part in grade.parts for call in part.calls])
    assert 1 == len(only(session).steps)


def test_a_late_score_has_its_calls(session: mttp.Session, client: Any) -> None:
    """
    A judge's call after the episode's end is below the late score's grade.
    """

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        return asked(client)

    with mttp.episode() as episode:
        plays(client)
    mttp.score(episode, spec_of(graded).score(SAMPLE))

    (score,) = only(session).scores.values()
    assert ["critic"] == [call.name for call in score.grades[0].calls]
    assert 1 == len(only(session).steps)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_decorated_reward_function_s_calls_are_its_scoring_s(
    session: mttp.Session, client: Any, is_late: bool
) -> None:
    """
    It has no grades, so that the calls are below the reward.
    """

    @mttp.instrument(records="reward")
    def rated(_: object) -> float:
        return asked(client)

    with mttp.episode() as episode:
        plays(client)
        if not is_late:
            rated(episode)
    if is_late:
        rated(episode)

    recorded = only(session)
    assert ["critic"] == [call.name for call in recorded.scores["rated"].calls]
    assert [["policy"]] == [[call.name for call in step.calls] for step in recorded.steps]


def test_a_decorated_async_reward_function_s_calls_are_its_scoring_s(
    session: mttp.Session, client: Any, async_client: Any
) -> None:
    """
    As for a plain function.
    """

    @mttp.instrument(records="reward")
    async def rated() -> float:
        return await asked_async(async_client)

    with mttp.episode():
        plays(client)
        asyncio.run(rated())

    recorded = only(session)
    assert (1, ["critic"]) == (len(recorded.steps), [call.name for call in recorded.reward.calls])


def test_an_episode_that_a_judge_plays_has_its_own_steps(session: mttp.Session, client: Any) -> None:
    """
    A call inside an episode that started within a scoring belongs to the episode.
    """

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        with mttp.episode(env="critic"):
            return asked(client)

    with mttp.episode(env="played") as episode:
        plays(client)
        episode.reward(spec_of(graded).score(SAMPLE))

    found = {episode.env: episode for episode in mttp.read(session).episodes}
    assert {"played": 1, "critic": 1} == {env: len(episode.steps) for env, episode in found.items()}
    assert () == found["played"].reward.grades[0].calls


def test_the_next_call_is_a_step_again(session: mttp.Session, client: Any) -> None:
    """
    After a scoring, calls are steps of the policy again.
    """

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        return asked(client)

    with mttp.episode():
        spec_of(graded).score(SAMPLE)
        plays(client)
        plays(client)

    assert [["policy"], ["policy"]] == [[call.name for call in step.calls] for step in only(session).steps]


def test_a_judge_that_instruments_its_client_is_no_policy(session: mttp.Session, address: str) -> None:
    """
    Its first call too belongs to the grade.
    """

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        with openai.OpenAI(base_url=address, api_key="none") as made, mttp.instrument(made):
            return asked(made)

    with mttp.episode() as episode:
        episode.reward(spec_of(graded).score(SAMPLE))

    assert (0, 1) == (len(only(session).steps), len(only(session).reward.grades[0].calls))


def test_the_official_instrumentation_s_call_is_the_grade_s(session: mttp.Session, client: Any) -> None:
    """
    Its span is the call, once.
    """
    official = pytest.importorskip("opentelemetry.instrumentation.genai.openai").OpenAIInstrumentor()
    official.instrument()
    try:
        with openai.OpenAI(base_url=client.base_url, api_key="none") as made, mttp.instrument(made):

            @mttp.rewards.judge(range=(0, 10))
            def graded(completion: str) -> float:
                return asked(made)

            with mttp.episode() as episode:
                episode.reward(spec_of(graded).score(SAMPLE))
    finally:
        official.uninstrument()

    assert (0, 1) == (len(only(session).steps), len(only(session).reward.grades[0].calls))


def test_usage_of_judges_is_summed_separately(session: mttp.Session, client: Any) -> None:
    """
    Calls, tokens and seconds of graders are added up per episode and recording, with late scores.
    """
    judging = mttp.RewardSpec(
        name="judged",
        version="1.0.0",
        components=[
            {"name": "taste", "kind": "judge", "use": lambda completion: asked(client), "repeats": 2}
        ],
        combine="weighted_sum",
    )
    with mttp.episode() as ep:
        plays(client)
        ep.reward(judging.score(SAMPLE))
    mttp.score(ep, judging.score_batch([SAMPLE])[0])

    recording = mttp.read(session)
    (episode,) = recording.episodes
    policys = [call for step in episode.steps for call in step.calls]
    one = policys[0]
    used = episode.grading_usage
    assert (1, 4) == (len(policys), used.calls)
    assert (4 * one.input_tokens, 4 * one.output_tokens) == (used.input_tokens, used.output_tokens)
    assert used.duration == pytest.approx(
        sum(
            (call.end_time - call.start_time) / 1e9
            for reward in (episode.reward, episode.annotations[0].reward)
            for grade in reward.grades
            for call in grade.calls
        )
    )
    assert (2, used) == (episode.reward.usage.calls, recording.grading_usage)
    summary = mttp.summarize(session)
    assert (one.input_tokens, one.output_tokens) == (summary.call_input_tokens, summary.call_output_tokens)
    assert [] == [found.message for found in mttp.check(session).all if "grader" in found.message]


ANSWER = {"role": "assistant", "content": "4"}


@pytest.mark.parametrize("options", [{}, {"observations": False}, {"actions": False}])
def test_a_judge_s_request_and_answer_are_in_its_call(
    session: mttp.Session, address: str, options: dict[str, bool]
) -> None:
    """
    As they were when it asked; an option of the client leaves them out.
    """
    with openai.OpenAI(base_url=address, api_key="none") as made, mttp.instrument(made, **options):

        @mttp.rewards.judge(range=(0, 10))
        def graded(completion: str) -> float:
            messages = [{"role": "user", "content": f"Rate {completion}!"}]
            said = made.chat.completions.create(model="critic", messages=messages)
            messages.append({"role": "assistant", "content": "?"})
            return float(said.choices[0].message.content)

        with mttp.episode() as episode:
            episode.reward(spec_of(graded).score(SAMPLE))

    (call,) = only(session).reward.grades[0].calls
    request = [{"role": "user", "content": "Rate four!"}]
    assert (None if "observations" in options else request) == call.arguments
    assert (None if "actions" in options else ANSWER) == call.result


@pytest.mark.parametrize("is_late", [False, True])
def test_the_messages_of_streams_and_texts_are_in_the_call(
    session: mttp.Session, client: Any, is_late: bool
) -> None:
    """
    And those of a request that failed, and of a decorated function.
    """

    @mttp.instrument(records="reward")
    def rated(_: object) -> float:
        for _ in client.chat.completions.create(model="critic", messages=QUESTION, stream=True):
            pass
        client.completions.create(model="critic", prompt="2+2=")
        with pytest.raises(openai.BadRequestError):
            asked(client, "broken")
        return 1.0

    with mttp.episode() as episode:
        if not is_late:
            rated(episode)
    if is_late:
        rated(episode)

    assert [
        (QUESTION, {"role": "assistant", "content": "It is 4"}),
        ("2+2=", "4"),
        (QUESTION, None),
    ] == [(call.arguments, call.result) for call in only(session).scores["rated"].calls]


def test_odd_messages_of_a_judge_cost_only_themselves(session: mttp.Session, client: Any) -> None:
    """
    The grade and the next call are recorded.
    """

    class Odd(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("nobody reads me")

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        with suppress(RuntimeError):
            client.chat.completions.create(model="critic", messages=[Odd(role="user", content="?")])
        return asked(client)

    with mttp.episode() as episode:
        episode.reward(spec_of(graded).score(SAMPLE))

    grade = only(session).reward.grades[0]
    assert (4.0, QUESTION, ANSWER) == (grade.value, grade.calls[-1].arguments, grade.calls[-1].result)


def test_an_error_is_shown_once_on_the_page(session: mttp.Session, client: Any) -> None:
    """
    With its class, at the component and at the whole.
    """
    from mttp.viewing.episode_page import episode_page

    with mttp.episode() as episode:
        episode.reward(components={"judge": TimeoutError("late")})

    (reward,) = blocks(episode_page(only(session))["blocks"], "reward")
    assert ("judge: TimeoutError: late", "TimeoutError: late") == (
        reward["error"],
        reward["components"][0]["error"],
    )


def test_a_judge_s_calls_are_shown(address: str, client: Any, tmp_path: Path) -> None:
    """
    Below its grade in the terminal, and on the page.
    """
    from typer.testing import CliRunner

    from mttp.cli.app import app
    from mttp.viewing.episode_page import episode_page

    @mttp.rewards.judge(range=(0, 10))
    def graded(completion: str) -> float:
        return asked(client)

    with mttp.configure(f"file://{tmp_path}/a.jsonl"), mttp.episode() as episode:
        episode.reward(spec_of(graded).score(SAMPLE))

    shown = CliRunner().invoke(app, ["show", f"{tmp_path}/a.jsonl", "--episode", episode.trace_id[:8]]).output
    (reward,) = blocks(episode_page(mttp.read(f"{tmp_path}/a.jsonl")[0])["blocks"], "reward")
    (call,) = reward["components"][0]["blocks"]
    assert shown.index("graded") < shown.index("chat critic") < shown.index("2+2=?")
    assert ["2+2=?", "4"] == [part["text"] for message in call["blocks"] for part in message["parts"]]
