"""Seams over what other people's classes and modules have, and over what they have no more."""

from __future__ import annotations

import functools
import logging
import pickle
import types
from typing import Any

import pytest

from mttp.integrations import seams
from mttp.integrations.seams import Handle, Seam


class Trainer:
    """Somebody else's."""

    def train(self, steps: int) -> int:
        """Train."""
        return steps

    @staticmethod
    def name() -> str:
        """Its name."""
        return "trainer"


class Loop:
    """Somebody else's, which nobody surrounds."""

    def run(self) -> None:
        """Run."""


class Mine(Trainer):
    """A user's own, which changes what it inherits."""

    def train(self, steps: int) -> int:
        return 10 * super().train(steps)


def doubled(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Around a method."""
    return 2 * wrapped(*args, **kwargs)


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    seams._warn.cache_clear()


def test_a_class_is_surrounded_for_all_its_instances() -> None:
    """
    Also for those of a subclass that calls it, and for those that were made before.
    """
    before, mine = Trainer(), Mine()
    handle = Handle(lambda: None)

    handle.expect("gymnasium", [("train", Trainer, "train", doubled)])

    assert (6, 6, 60) == (before.train(3), Trainer().train(3), mine.train(3))
    assert {"train": True} == handle.status()


def test_a_class_is_left_as_it_was() -> None:
    """
    The very function is back, static methods stay static, and what was inherited is inherited again.
    """
    train, name = vars(Trainer)["train"], vars(Trainer)["name"]
    handle = Handle(lambda: None)
    handle.expect(
        "gymnasium",
        [
            ("train", Trainer, "train", doubled),
            ("name", Trainer, "name", doubled),
            ("inherited", Mine, "name", doubled),
        ],
    )
    assert ("trainer" * 4, "trainer" * 2) == (Mine.name(), Trainer().name())

    handle.detach()

    assert (train, name) == (vars(Trainer)["train"], vars(Trainer)["name"])
    assert "name" not in vars(Mine)
    assert not any(handle.status().values())


@pytest.mark.parametrize("target", [functools.partial(int, "3"), Loop().run, sum, doubled])
def test_pickling_gives_what_is_surrounded(target: Any) -> None:
    """
    A partial or a method with what it is bound to, a function by its name.
    """
    seam = Seam(target, doubled, Handle(lambda: None))

    found = pickle.loads(pickle.dumps(seam))

    assert (type(target), pickle.dumps(target)) == (type(found), pickle.dumps(found))


def test_what_a_library_has_no_more_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """
    The rest is recorded; the warning names what is missing and the versions that were tested.
    """
    library = types.ModuleType("library")
    library.train = lambda: 1  # type: ignore[attr-defined]  # made here

    with caplog.at_level(logging.WARNING, "mttp"):
        for _ in range(2):
            handle = Handle(lambda: None)
            handle.expect(
                "gymnasium", [("train", library, "train", doubled), ("gone", library, "gone", doubled)]
            )
            assert 2 == library.train()
            assert {"train": True, "gone": False} == handle.status()
            handle.detach()

    (message,) = [record.getMessage() for record in caplog.records]
    assert (
        "has no gone: what passed through there is not recorded, the rest is (tested: 1.1 to 1.4)" in message
    )
