"""Episodes of a recording that are asked for, and how a recording shows itself."""

from __future__ import annotations

from typing import Any

import pytest
from reading.traces import RUN, episode, trace_id, write

import mttp
from mttp.errors import ConfigureError, ReadError
from mttp.semconv import attributes as a


def recording() -> mttp.Recording:
    """Four episodes: of two environments and tasks, the last one failed."""
    made = [
        episode(0, components={"x": 1.0}, **{a.TASK_ID: "t0", a.POLICY_ID: "p"}),
        episode(1, **{a.TASK_ID: "t1", a.ENV_ID: "Pong"}),
        episode(2, return_=5.0, **{a.TASK_ID: "t1"}),
        episode(3, **{a.EPISODE_STATUS: "error", a.EPISODE_OUTCOME: "failure"}),
    ]
    return mttp.read(write("a.jsonl", [span for one in made for span in one]))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, [0, 1, 2, 3]),
        ({"task": "t1"}, [1, 2]),
        ({"task": ["t0", "t1"], "env": "CartPole-v1"}, [0, 2]),
        ({"task": []}, []),
        ({"status": "error"}, [3]),
        ({"outcome": {"failure", "unknown"}}, [3]),
        ({"policy": "p"}, [0]),
        ({"run": RUN}, [0, 1, 2, 3]),
        ({"run": "another"}, []),
        ({"spec": "math"}, [0]),
        ({"spec": "math@1.0"}, [0]),
        ({"spec": "math@2.0"}, []),
        ({"reward_status": "missing"}, [1, 2, 3]),
        ({"predicate": lambda episode: episode.return_ == 5.0}, [2]),
        ({"predicate": lambda episode: episode.return_ == 5.0, "env": "Pong"}, []),
    ],
)
def test_a_filtered_recording_has_the_episodes_that_match(asked: dict[str, Any], found: list[int]) -> None:
    """
    Every argument must match; of several values, any.
    """
    kept = recording().filter(**asked)

    assert [trace_id(number) for number in found] == [episode.trace_id for episode in kept]


def test_what_belongs_to_other_episodes_is_left_out():
    """
    Groups, annotations, runs and problems of the other episodes are dropped.
    """
    with mttp.configure(transport="memory://", run="first") as session:
        with mttp.episode(env="a", group="g") as member:
            pass
        with mttp.group("g", size=1) as group:
            group.add(member)
        with mttp.episode(env="b") as other:
            pass
        mttp.score(other, 1.0, grader="late")
    found = mttp.read(session)
    of_a, of_b = found.filter(env="a"), found.filter(env="b", run="first")

    assert ((1, 0), (0, 1)) == tuple((len(one.groups), len(one.annotations)) for one in (of_a, of_b))
    assert ["first"] == [run.name for run in of_b.runs]
    assert [] == found.filter(env="c").runs


def test_an_episode_is_found_by_the_beginning_of_its_trace_id_and_by_place():
    """
    Positions are those of a list.
    """
    found = recording()

    assert trace_id(1) == found[trace_id(1)].trace_id == found["00000002"].trace_id
    assert (trace_id(0), trace_id(3)) == (found[0].trace_id, found[-1].trace_id)
    assert [trace_id(1), trace_id(2)] == [episode.trace_id for episode in found[1:3]]


def test_an_episode_is_found_by_its_own_id():
    """
    The id may be set by the program; an id that several attempts share is ambiguous.
    """
    with mttp.configure(transport="memory://") as session:
        for id_ in ("alone", "twice", "twice"):
            with mttp.episode(id=id_):
                pass
    found = mttp.read(session)

    assert "alone" == found["alone"].id
    with pytest.raises(ReadError, match="2 episodes"):
        _ = found["twice"]


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("f", f"no episode's trace id begins with 'f'; there are 4 episodes: {trace_id(0)}, .*, …"),
        ("0000000", f"4 episodes' trace ids begin with '0000000'; give more digits: {trace_id(0)}, .*, …"),
        ("", "4 episodes' trace ids begin with ''"),
    ],
)
def test_an_unknown_or_ambiguous_id_is_an_error_that_lists_what_there_is(prefix: str, message: str) -> None:
    """
    An ambiguous id raises instead of returning an episode.
    """
    with pytest.raises(ReadError, match=message):
        _ = recording()[prefix]


def test_an_episode_is_in_its_recording_by_each_of_its_names():
    """
    What `recording[name]` finds is in it, by its id and by the beginning of its trace id.
    """
    found = recording()
    first = found[0]

    assert all(name in found for name in (first, first.trace_id, first.trace_id[:31]))
    assert not any(name in found for name in ("", "f" * 32, 0, None))


def test_words_that_are_no_function_are_refused_with_what_to_write():
    """
    `filter` accepts a function, not a condition as text.
    """
    with pytest.raises(ConfigureError, match=r"give values by name, for example filter\(status='error'\)"):
        recording().filter("status=error")  # type: ignore[arg-type]


def test_an_empty_recording_has_no_episode_to_find():
    """
    The error says so.
    """
    with pytest.raises(ReadError, match="there are no episodes"):
        _ = recording().filter(env="nowhere")["0"]


def test_an_episode_shows_itself_in_one_readable_line():
    """
    The repr has the id and the result; control characters are escaped, and long names truncated.
    """
    first = recording()[0]
    with mttp.configure(transport="memory://") as session, mttp.episode(env="a\nb", task="t" * 200) as open_:
        open_.reward(1.0, components={"x": float("nan")})
    (odd,) = mttp.read(session)

    assert "<Episode 00000001 CartPole-v1 t0: completed, success, 2 steps, return 1>" == repr(first)
    assert (
        f"<Episode {odd.trace_id[:8]} 'a\\nb' {'t' * 37}...: completed, unknown, 0 steps, return 1, "
        in repr(odd)
    )
    assert repr(odd).endswith("reward partial>")
    assert "<Episode: completed, unknown, 0 steps>" == repr(mttp.Episode())


def test_a_notebook_shows_a_table_of_episodes():
    """
    Text is escaped; the table has the first episodes, and states how many there are.
    """
    with mttp.configure(transport="memory://") as session:
        for number in range(51):
            with mttp.episode(env="<script>alert(1)</script>", task=f"a&b {number}"):
                pass
    shown = mttp.read(session)._repr_html_()

    assert ("<script>" in shown, "&lt;script&gt;alert(1)&lt;/script&gt;" in shown) == (False, True)
    assert ("a&amp;b 49</td>" in shown, "a&amp;b 50</td>" in shown) == (True, False)
    assert "50 of 51 episodes are shown." in shown


def test_a_notebook_s_list_has_the_ends_of_texts():
    """
    On one line each.
    """
    with mttp.configure(transport="memory://") as session, mttp.episode() as episode, episode.step() as step:
        step.observation([{"role": "user", "content": "x" * 100 + "\n2+4="}])
        step.action("six")
    shown = mttp.read(session)._repr_html_()

    assert "<th>prompt</th><th>completion</th>" in shown
    assert f"<td>{'x' * 55} 2+4=</td><td>six</td>" in shown


def test_a_notebook_shows_a_recording_without_episodes():
    """
    The table has only a header.
    """
    shown = recording().filter(env="nowhere")._repr_html_()

    assert ("<tbody></tbody>" in shown, "Recording of 0 episodes" in shown) == (True, True)
