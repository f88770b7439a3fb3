"""Examples in the docstrings of public objects."""

from __future__ import annotations

import doctest

import pytest

import mttp
import mttp.rewards

PUBLIC = [mttp.evaluate, *(getattr(mttp.rewards, name) for name in mttp.rewards.__all__)]
WITHOUT_EXAMPLE = {"RewardResult"}
"""Public names that users do not make themselves."""


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_the_example_of_a_docstring_runs(public: object) -> None:
    """
    Each public object has an example, whose output is the one that the docstring shows.
    """
    name = public.__name__
    examples = doctest.DocTestParser().get_doctest(public.__doc__ or "", {}, name, None, 0)
    found = doctest.DocTestRunner().run(examples)

    assert (0, name not in WITHOUT_EXAMPLE) == (found.failed, found.attempted > 0)


def test_the_decorator_and_the_check_of_a_recording_are_kept_apart() -> None:
    """
    A path given to the decorator is an error that names the other function.
    """
    with pytest.raises(
        TypeError, match=r"mttp\.rewards\.check decorates a function and got 'runs/'.*mttp\.check"
    ):
        mttp.rewards.check("runs/")
