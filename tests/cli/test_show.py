"""`mttp show`: chosen episodes, and one of them as a chat."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli import conditions
from mttp.cli.app import app
from mttp.cli.rendering.episodes import SORTS
from mttp.cli.show import Sort
from mttp.tables import Database

ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    ],
}
OPENING = [
    {"role": "system", "content": "Be brief.\nUse tools."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Weather [bold]in[/bold] \x1b[31mParis\x1b[0m\u202e?"}],
    },
]
ANSWER = {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "18 C" + ", sunny" * 100}


@pytest.fixture
def chat() -> str:
    """Three episodes of a chat with a tool; only the episode is paid, the last one wrongly."""
    with mttp.configure("file://chat.jsonl", run="desk"):
        for number, paid in enumerate((0.5, 1.0, float("nan"))):
            with mttp.episode(env="desk", task=f"t/{number}") as episode:
                with episode.step() as step:
                    step.observation(OPENING)
                    step.action(ASKS)
                    with step.tool_call("weather", arguments={"city": "Paris"}) as call:
                        call.result("18 C")
                with episode.step() as step:
                    step.observation([*OPENING, ASKS, ANSWER])
                    step.action("Sunny.\n\nAnything else?")
                episode.reward(paid)
                episode.end(terminated=True, outcome="success" if paid == 1 else "failure")
    return "chat.jsonl"


def show(*arguments: str, code: int = 0, columns: int = 80) -> str:
    """What is printed, where the command exits so."""
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["show", *arguments], prog_name="mttp")

    assert code == result.exit_code, result.output
    return str(result.stderr if code == 2 else result.stdout)


def tasks(*arguments: str) -> list[str]:
    """The tasks of the episodes that are shown, in their order."""
    return [episode["task"] for episode in json.loads(show(*arguments, "--json"))["episodes"]]


def lines(text: str) -> list[str]:
    """The lines without their indentation."""
    return [line.strip() for line in text.splitlines()]


def steps_of(path: str, episode: str) -> list[str]:
    """The titles of the steps of an episode."""
    return [line for line in lines(show(path, "--episode", episode)) if line.startswith("step ")]


def test_a_chat_is_shown_as_a_chat(chat: str):
    """
    Roles and contents, line by line, with the arguments and results of tools.
    """
    shown = lines(show(chat, "--episode", "best"))
    first = shown.index(next(line for line in shown if line.startswith("step 0")))

    assert [
        "system",
        "Be brief.",
        "Use tools.",
        "user  Weather [bold]in[/bold] \\x1b[31mParis\\x1b[0m\\u202e?",
        "assistant",
    ] == shown[first + 1 : first + 6]
    assert shown[first + 6].startswith("calls weather  ")
    assert ['arguments  {"city": "Paris"}', "result  18 C"] == shown[first + 7 : first + 9]


def test_a_step_shows_its_new_messages(chat: str):
    """
    Those that came before are counted.
    """
    text = show(chat, "--episode", "best")
    second = text[text.index("step 1") :]

    assert "after 3 earlier messages" in second.splitlines()[0]
    assert "tool weather  18 C, sunny" in second.splitlines()[1]
    assert ("assistant" in second, "Be brief." in second) == (True, False)
    end = lines(second).index("Sunny.")
    assert ["Sunny.", "", "Anything else?", "", "Reward", "reward  1"] == lines(second)[end : end + 6]


def test_a_conversation_that_changed_is_shown_from_there(chat: str):
    """
    A message that is not as before is new, and so is what follows it.
    """
    with mttp.configure("file://other.jsonl"), mttp.episode() as episode:
        for system in ("one", "two"):
            with episode.step() as step:
                step.observation([{"role": "system", "content": system}, {"role": "user", "content": "hi"}])
                step.action({"role": "assistant", "content": "yes"})
    text = show("other.jsonl", "--episode", "last")

    assert ["system  one", "system  two"] == [line for line in lines(text) if line.startswith("system")]
    assert 2 == text.count("user  hi")


def test_full_shows_all_text(chat: str):
    """
    Otherwise a long text is cut, and says how to see the rest.
    """
    short, full = show(chat, "--episode", "best"), show(chat, "--episode", "best", "--full")

    assert "--full shows all" in " ".join(lines(short))
    assert (False, 100) == ("--full" in full, full.replace("\n", "").count("sunny"))


def test_full_goes_with_an_episode(chat: str):
    """
    A table has no texts to show.
    """
    assert "--full needs --episode" in show(chat, "--full", code=2)


def test_an_episode_that_is_rewarded_as_a_whole_misses_no_step_reward(chat: str):
    """
    In an episode with step rewards, a step without a reward is marked.
    """
    with mttp.configure("file://steps.jsonl"), mttp.episode() as episode:
        with episode.step() as step:
            step.reward(0.5)
        with episode.step():
            pass

    steps = steps_of("steps.jsonl", "last")
    assert "missing" not in show(chat, "--episode", "best")
    assert ["step 0  reward 0.5", "step 1  no reward"] == [line.partition(",")[0] for line in steps]


@pytest.mark.parametrize("timing", ["live", "batch"])
def test_steps_without_times_of_their_own_show_no_duration(timing: str):
    """
    Steps of a finished episode without times have those of the episode, which are not shown as theirs.
    """
    start = 10**18
    untimed = mttp.Episode(
        env="e", start_time=start, end_time=start + 35 * 10**9, steps=(mttp.Step(index=0), mttp.Step(index=1))
    )
    timed = mttp.Step(index=1, start_time=start + 10**9, end_time=start + 3 * 10**9)
    with mttp.configure("file://whole.jsonl") as session:
        first = session.record(untimed, timing=timing).trace_id
        second = session.record(replace(untimed, steps=(untimed.steps[0], timed))).trace_id

    assert ["step 0", "step 1"] == steps_of("whole.jsonl", first)
    assert ["step 0", "step 1  2 s"] == steps_of("whole.jsonl", second)


@pytest.mark.parametrize("terminal", [{}, {"FORCE_COLOR": "1"}], ids=["pipe", "terminal"])
@pytest.mark.parametrize("options", [(), ("--json",), ("--full",)])
def test_no_text_acts_on_the_terminal(chat: str, terminal: dict[str, str], options: tuple[str, ...]):
    """
    The only escape sequences are our own colours, and the marks of markup stay visible.
    """
    result = CliRunner(env=terminal).invoke(app, ["show", chat, "--episode", "best", *options])

    assert ("\x1b[31mParis" in result.stdout, "\u202e" in result.stdout) == (False, False)
    assert "[bold]in[/bold]" in result.stdout


@pytest.mark.parametrize(("name", "expected"), [("last", "t/2"), ("best", "t/1"), ("worst", "t/0")])
def test_an_episode_is_picked_by_name(chat: str, name: str, expected: str):
    """
    One whose reward is no number is neither the best nor the worst.
    """
    assert expected == json.loads(show(chat, "--episode", name, "--json"))["task"]


def test_the_best_of_those_that_are_wanted(chat: str):
    """
    Conditions come first.
    """
    assert "t/0" == json.loads(show(chat, "--outcome", "failure", "--episode", "best", "--json"))["task"]
    left = show(chat, "--env", "no", "--episode", "best", code=2)
    assert "there is no best episode: none of 3 matches the conditions" in left
    assert "none of 1 has a valid return" in show(chat, "--task", "t/2", "--episode", "worst", code=2)


def test_of_an_empty_recording_no_episode_is_the_worst():
    """
    The error says that there are none.
    """
    mttp.configure("file://empty.jsonl").close()

    assert "the recording has no episodes" in show("empty.jsonl", "--episode", "worst", code=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--where", "return<0.8"), ["t/0"]),
        (("--where", "reward_status=error"), ["t/2"]),
        (("--where", "task~t/[12]", "--where", "outcome=success"), ["t/1"]),
        (("--task", "t/2"), ["t/2"]),
        (("--env", "desk", "--outcome", "failure"), ["t/0", "t/2"]),
        (("--run", "desk"), ["t/0", "t/1", "t/2"]),
        (("--sort", "reward", "--reverse"), ["t/1", "t/0", "t/2"]),
        (("--env", "desk", "--sort", "reward", "--limit", "1"), ["t/0"]),
        (("--env", "other"), []),
    ],
)
def test_episodes_are_chosen(chat: str, arguments: tuple[str, ...], expected: list[str]):
    """
    The document has those for which everything holds, as the table has.
    """
    text = show(chat, *arguments)

    assert expected == tasks(chat, *arguments)
    assert [task in text for task in ("t/0", "t/1", "t/2")] == [
        task in expected for task in ("t/0", "t/1", "t/2")
    ]


def test_a_table_says_how_many_were_chosen(chat: str):
    """
    Of how many.
    """
    assert "2 of 3 episodes" in show(chat, "--outcome", "failure")
    assert "0 of 3 episodes" in show(chat, "--env", "other")
    assert "of 3 episodes" not in show(chat)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--where", "colour=red"), "there is no column 'colour'; the columns are episode, run, env"),
        (("--run", "no"), "no run has the id or name 'no'; the runs are "),
        (("--where", "status=bogus"), "status is one of aborted, completed, error, unfinished"),
        (("--where", "status=partial"), "'partial' is a reward_status"),
    ],
)
def test_a_wrong_choice_says_what_there_is(chat: str, arguments: tuple[str, ...], words: str):
    """
    With exit code 2.
    """
    assert words in show(chat, *arguments, code=2)


def test_every_order_can_be_asked_for():
    """
    What can be sorted by is what `--sort` takes.
    """
    assert list(SORTS) == [order.value for order in Sort]


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_a_narrow_terminal_loses_no_names(columns: int):
    """
    Task and environment are there in full, on the row or below it.
    """
    task = "a-task-with-quite-a-long-name"
    with mttp.configure("file://a.jsonl"), mttp.episode(env="an-environment/with-a-name-v3", task=task):
        pass
    result: Any = CliRunner(env={"COLUMNS": str(columns), "TTY_COMPATIBLE": "1", "NO_COLOR": "1"}).invoke(
        app, ["show", "a.jsonl"]
    )

    assert task in result.stdout
    assert "an-environment/with-a-name-v3" in result.stdout
    assert "…" not in result.stdout


def test_one_step_that_is_left_out_is_one():
    """
    The hint counts in words that agree.
    """
    with mttp.configure("file://two.jsonl"), mttp.episode() as episode:
        for _ in range(2):
            with episode.step():
                pass

    assert "… and 1 more step; --limit 0 shows all" in show("two.jsonl", "--episode", "last", "--limit", "1")


def test_the_list_has_the_ends_of_prompt_and_completion(chat: str):
    """
    On one line each, without markup or escapes.
    """
    text = show(chat, "--limit", "1", columns=300)

    assert "Use tools. Weather [bold]in[/bold]" in text
    assert "Sunny. Anything else?" in text
    assert "\x1b" not in text


def test_an_episode_is_markdown_too(chat: str):
    """
    Its messages are a list, in which no text is markup.
    """
    text = show(chat, "--episode", "best", "--markdown")

    assert "  - **user** Weather \\[bold\\]in\\[/bold\\]" in text
    assert "    - **calls weather**" in text


def test_groups_are_listed():
    """
    With their rewards, those that teach nothing counted.
    """
    with mttp.configure("file://groups.jsonl"):
        for name, values in (("even", (1.0, 1.0)), ("odd", (0.0, 1.0))):
            with mttp.group(name) as group:
                for value in values:
                    with mttp.episode(group=group) as episode:
                        episode.reward(value)
                        episode.end(terminated=True)
                    group.add(episode)
    text = show("groups.jsonl", columns=120)

    assert "with equal rewards    1: their advantages are 0: they teach nothing" in text
    assert ["odd", "2", "0.5", "0.7071"] == next(
        line.split()[:4] for line in text.splitlines() if line.startswith("odd ")
    )


def test_conditions_by_sql_read_the_source_once(chat: str, monkeypatch: pytest.MonkeyPatch):
    """
    However many there are.
    """
    databases = []

    def opened(sources: list[str]) -> Database:
        databases.append(sources)
        return Database(sources)

    monkeypatch.setattr("mttp.tables.Database", opened)
    conditions.predicate([chat], ["completion like '%Sunny%'", "reward > 0.5 and length = 2"])

    assert [[chat]] == databases
