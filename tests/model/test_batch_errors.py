"""Which sample of a batch made a function raise."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

import mttp
from mttp.model.batch_errors import raised_at

TEXTS = ["1", "2 x", "x", "4", "", ""]
TRUTHS = ["1", "2", "3", "4", "5", "6"]


def number(text: str) -> int:
    """Return the digits as a number; raises for a text without digits."""
    return int("".join(character for character in text if character.isdigit()))


def in_a_helper(texts, truths):
    return [number(text) == int(truth) for text, truth in zip(texts, truths, strict=True)]


def mapped(texts, truths):
    return list(map(number, texts))


def by_index(texts, truths):
    found = []
    for index in range(len(texts)):
        text = texts[index]
        digits = re.sub("[^0-9]", "", text)
        found.append(int(digits))
    return found


def in_a_loop(texts, truths):
    found = []
    for text, truth in zip(texts, truths, strict=True):
        digits = re.sub("[^0-9]", "", text)
        found.append(
            int(digits) == int(truth),
        )
    return found


def after_a_loop(texts, truths):
    for text in texts:
        last = text
    return [number(f"{text}") + len(last) for text in texts]


def within_another_loop(texts, truths):
    for _ in range(3):
        for text in texts:
            number(text)


def with_the_best(texts, truths):
    best = texts[0]
    return [number(text) / len(best) for text in texts]


async def together(texts, truths):
    async def later(text):
        await asyncio.sleep(0)
        return number(text)

    return await asyncio.gather(*map(later, texts))


def of_none(texts, truths):
    raise RuntimeError("for all")


def row(function, *columns) -> int | None:
    """Return the row that made a function raise."""
    try:
        returned = function(*columns)
        if asyncio.iscoroutine(returned):
            asyncio.run(returned)
    except Exception as error:
        return raised_at(error, columns)
    raise AssertionError("it did not raise")


@pytest.mark.parametrize(
    "function",
    [in_a_helper, mapped, by_index, in_a_loop, after_a_loop, within_another_loop, with_the_best, together],
)
def test_the_row_is_that_of_the_running_loop_or_of_the_arguments(function):
    """
    However the function goes through its batch; a value that other rows have too does not mislead.
    """
    assert 2 == row(function, TEXTS, TRUTHS)


def test_a_comprehension_tells_its_row_before_python_3_12():
    """
    Later its variable is gone when it raises, and nothing is said.
    """
    expected = 2 if sys.version_info < (3, 12) else None

    assert expected == row(lambda texts: [int(re.sub("[^0-9]", "", text)) for text in texts], TEXTS)


def test_a_chat_is_known_by_its_text():
    """
    Which most functions take out first.
    """
    chats = [[{"role": "assistant", "content": text}] for text in TEXTS]

    def parsed(chats):
        texts = [chat[0]["content"] for chat in chats]
        return list(map(number, texts))

    assert 2 == row(parsed, chats)


def test_nothing_is_said_where_nothing_is_known():
    """
    Where the function raises for all, and where it looks at copies.
    """
    assert row(of_none, TEXTS, TRUTHS) is None
    assert row(lambda texts: [number(f"{text} ") for text in texts if len(text) > 90] or 1 / 0, TEXTS) is None


def batched(completions):
    return [number(completion) for completion in completions]


def test_a_component_that_takes_batches_says_which_sample_it_was():
    """
    Each sample has the error, and whether it was the one.
    """
    spec = mttp.RewardSpec(
        name="sums",
        version="1.0.0",
        combine="weighted_sum",
        components=[{"name": "sum", "kind": "rubric", "use": batched, "arity": "batch", "version": "1"}],
    )

    results = spec.score_batch([{"completion": text} for text in TEXTS])

    grades = [result.components["sum"] for result in results]
    assert {("error", "ValueError", "ValueError: invalid literal for int() with base 10: ''")} == {
        (grade.status, grade.error_type, grade.error) for grade in grades
    }
    whose = ["this one" if place == 2 else "another one" for place in range(6)]
    assert [f"raised for row 2 of a batch of 6, {one}" for one in whose] == [
        one.explanation for one in grades
    ]
    assert {"batch": {"row": 1, "raised": 2, "size": 6}} == grades[1].evidence


def test_an_exception_that_is_returned_is_the_error():
    """
    As `asyncio.gather` returns it for one of several.
    """

    async def judged(completions):
        async def one(completion):
            return number(completion)

        return await asyncio.gather(*map(one, completions), return_exceptions=True)

    spec = mttp.RewardSpec(
        name="sums",
        version="1.0.0",
        combine="weighted_sum",
        components=[{"name": "sum", "kind": "judge", "use": judged, "arity": "batch", "version": "1"}],
    )

    results = spec.score_batch([{"completion": text} for text in ("3", "x")])

    assert [(3.0, None), (None, "ValueError")] == [
        (one.components["sum"].value, one.components["sum"].error_type) for one in results
    ]
