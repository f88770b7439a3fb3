"""The integration with OpenEnv with a stand-in for the library, which always runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from programs import told

BEGINNING = f"""
    import asyncio, json, sys
    sys.path[:0] = [{str(Path(__file__).parent / "fakes")!r}]
    from types import SimpleNamespace
    import mttp
    from mttp.integrations.openenv import attach, attach_all

    def reward_of(rubric, **options):
        with mttp.configure("memory://") as session, attach(rubric) as handle:
            with mttp.episode() as episode, episode.step():
                rubric(SimpleNamespace(), None)
            return mttp.read(session)[0].steps[0].rewards, handle.status(), dict(session.stats.faults)
"""


def said(code: str, *, warned: str = "") -> Any:
    """What a program says after the beginning."""
    return told(BEGINNING + code, warned=warned)


def test_a_step_s_message_carries_the_episode() -> None:
    """
    Metadata of the action remain, and the caller's action is unchanged; other messages carry nothing.
    """
    found = said(
        """
    async def main():
        with mttp.configure("memory://"), attach_all() as handle:
            before = handle.status()
            from openenv.core.env_client import EnvClient

            client, action = EnvClient(), {"n": 1, "metadata": {"mine": 1}}
            await client.step(action)
            with mttp.episode() as episode, episode.step():
                result = await client.step(action)
                await client.step({"n": 2})
                await client.step({"metadata": "text"})
                await client.reset(seed=1)
                status = handle.status()
                handle.detach()
                await client.step(action)
        keys = [sorted(one["data"].get("metadata", ())) for one in client.sent]
        trace = client.sent[1]["data"]["metadata"]["traceparent"].split("-")[1]
        print(json.dumps([before, status, keys, action, result, trace == episode.trace_id]))

    asyncio.run(main())
    """
    )

    assert [
        {"openenv.core.env_client": False},
        {"_send_and_receive": True},
        [
            ["mine"],
            ["baggage", "mine", "traceparent"],
            ["baggage", "traceparent"],
            sorted("text"),
            [],
            ["mine"],
        ],
        {"n": 1, "metadata": {"mine": 1}},
        {"data": {"reward": 1.0}},
        True,
    ] == found


def test_one_client_is_enough() -> None:
    """
    Others send nothing; a synchronous client is the one that it wraps.
    """
    found = said(
        """
    from openenv.core.env_client import EnvClient

    async def main():
        one, other = EnvClient(), EnvClient()
        with mttp.configure("memory://"), attach(SimpleNamespace(async_client=one)):
            with attach(one), mttp.episode():
                await one.step({})
                await other.step({})
        return [list(client.sent[0]["data"]) for client in (one, other)]

    print(json.dumps(asyncio.run(main())))
    """
    )

    assert [["metadata"], []] == found


def test_rubrics_are_a_tree_of_grades() -> None:
    """
    A rubric that was not called is in none; a judge is of its kind.
    """
    found = said(
        """
    from openenv.core.rubrics import First, LLMJudge, Rubric

    rubric = Rubric(first=First(a=LLMJudge(0.5), b=Rubric(1.0)), second=Rubric(0.25))
    (reward,), status, faults = reward_of(rubric)
    tree = [[one.name, one.kind, one.value, [[p.name, p.kind, p.value] for p in one.parts]]
            for one in reward.grades]
    print(json.dumps([reward.value, reward.grader, dict(reward.components), tree, status, faults]))
    """
    )

    assert [
        0.75,
        "Rubric",
        {"first": 0.5, "second": 0.25},
        [
            ["first", "rubric", 0.5, [["a", "judge", 0.5]]],
            ["second", "rubric", 0.25, []],
        ],
        {
            "forward_pre": True,
            "first.forward": True,
            "first.a.forward": True,
            "first.b.forward": True,
            "second.forward": True,
            "forward": True,
        },
        {},
    ] == found


def test_a_score_that_is_not_a_finite_number_is_an_error() -> None:
    """
    Of a rubric, and of one below it.
    """
    found = said(
        """
    from openenv.core.rubrics import First, Rubric

    rewards = [reward_of(rubric)[0][0] for rubric in (
        Rubric(float("nan")), First(a=Rubric(float("inf"))), First(a=Rubric("x")),
    )]
    print(json.dumps([[one.status, one.value, dict(one.component_statuses)] for one in rewards]))
    """,
        warned="reward_invalid",
    )

    assert [["error", None, {}], ["error", None, {"a": "error"}], ["error", None, {"a": "error"}]] == found


def test_hooks_are_installed_once_and_removed() -> None:
    """
    By the end of the last block; an environment's rubric is the same one.
    """
    found = said(
        """
    from openenv.core.rubrics import Rubric

    rubric = Rubric(1.0)
    rubric.register_forward_hook(print)
    environment = SimpleNamespace(rubric=rubric)
    counts = []
    with attach(rubric) as handle:
        with attach(environment):
            counts.append(len(rubric._forward_hooks))
        counts.append(len(rubric._forward_hooks))
    counts += [len(rubric._forward_hooks), len(rubric._forward_pre_hooks)]
    print(json.dumps([counts, handle.status()]))
    """
    )

    assert [[2, 2, 1, 0], {"forward_pre": False, "forward": False}] == found


def test_an_action_names_its_step_in_another_process() -> None:
    """
    Without a current step, its metadata do; without either, nothing is recorded.
    """
    found = said(
        """
    from openenv.core.rubrics import Rubric

    rubric = Rubric(0.5)
    with mttp.configure("memory://") as session, attach(rubric):
        with mttp.episode() as episode:
            with episode.step():
                carrier = mttp.inject()
            rubric(SimpleNamespace(metadata=carrier), None)
            rubric(SimpleNamespace(metadata={}), None)
            rubric(SimpleNamespace(metadata=None), None)
        (recorded,) = mttp.read(session)
    print(json.dumps([[one.value for one in recorded.steps[0].rewards], dict(session.stats.faults)]))
    """
    )

    assert [[0.5], {}] == found


def test_a_hook_that_raises_harms_nothing() -> None:
    """
    It is counted; the score is the rubric's.
    """
    found = said(
        """
    from openenv.core.rubrics import Rubric

    class Broken(Rubric):
        def named_children(self):
            raise RuntimeError("broken")

    rubric = Broken(0.5)
    rubric.named_rubrics = lambda: ()
    with mttp.configure("memory://") as session, attach(rubric), mttp.episode() as episode, episode.step():
        print(json.dumps([rubric(SimpleNamespace(), None), dict(session.stats.faults)]))
    """,
        warned="integration_error",
    )

    assert [0.5, {"integration_error": 1}] == found


def test_other_objects_are_refused() -> None:
    """
    The error says what can be given.
    """
    found = said(
        """
    from mttp.errors import InstrumentError

    try:
        attach(SimpleNamespace(rubric=None))
    except InstrumentError as error:
        print(json.dumps(str(error)))
    """
    )

    assert (
        "types.SimpleNamespace can't be recorded; give a client, a rubric or an environment with one" == found
    )
