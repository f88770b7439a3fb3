"""Patches of classes, objects and modules, and of attributes that do not exist."""

from __future__ import annotations

import copy
import functools
import gc
import logging
import pickle
import types
import weakref
from typing import Any
from unittest.mock import patch

import pytest

from mttp.integrations import patching
from mttp.integrations.patching import PatchedFunction, Patches


class Trainer:
    """A library's class."""

    def train(self, steps: int) -> int:
        """Train."""
        return steps

    @staticmethod
    def name() -> str:
        """The name."""
        return "trainer"


class Loop:
    """A library's class that is not patched."""

    def run(self) -> None:
        """Run."""


class Mine(Trainer):
    """A user's subclass that overrides a method."""

    def train(self, steps: int) -> int:
        return 10 * super().train(steps)


def doubled(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """A wrapper of a method."""
    return 2 * wrapped(*args, **kwargs)


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    patching._warn.cache_clear()


def test_a_patched_class_affects_all_instances() -> None:
    """
    Also instances of a subclass that calls it, and earlier instances.
    """
    before, mine = Trainer(), Mine()
    handle = Patches(lambda: None)

    handle.install_existing("gymnasium", [("train", Trainer, "train", doubled)])

    assert (6, 6, 60) == (before.train(3), Trainer().train(3), mine.train(3))
    assert {"train": True} == handle.status()
    handle.detach()


def test_a_class_is_left_as_it_was() -> None:
    """
    Detaching restores the function itself, static methods and inheritance.
    """
    train, name = vars(Trainer)["train"], vars(Trainer)["name"]
    handle = Patches(lambda: None)
    handle.install_existing(
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
def test_pickling_gives_the_original(target: Any) -> None:
    """
    A partial or a bound method with its object, a function by its name.
    """
    patched = PatchedFunction(target, doubled, Patches(lambda: None))

    found = pickle.loads(pickle.dumps(patched))

    assert (type(target), pickle.dumps(target)) == (type(found), pickle.dumps(found))


def test_missing_attributes_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """
    The warning names them and the tested versions, and the others are patched.
    """
    library = types.ModuleType("library")
    library.train = lambda: 1  # type: ignore[attr-defined]  # made here

    with caplog.at_level(logging.WARNING, "mttp"):
        for _ in range(2):
            handle = Patches(lambda: None)
            handle.install_existing(
                "gymnasium", [("train", library, "train", doubled), ("gone", library, "gone", doubled)]
            )
            assert 2 == library.train()
            assert {"train": True, "gone": False} == handle.status()
            handle.detach()

    (message,) = [record.getMessage() for record in caplog.records]
    assert (
        "has no gone: what mttp records there is missing, the rest is recorded (tested: 1.1 to 1.4)"
        in message
    )


def held(trainer: Any, around: Any = doubled) -> Patches:
    """Return a handle with a patch of the trainer's `train`."""
    handle = Patches(lambda: None)
    handle.install(trainer, [("train", "train", around)])
    return handle


@pytest.mark.parametrize("kind", [Trainer, Mine])
def test_a_method_that_is_patched_in_the_class_is_called(kind: type[Trainer]) -> None:
    """
    Patched before or after; after that patch is removed, the method is called again.
    """
    for is_first in (True, False):
        trainer = kind()
        handle = held(trainer) if is_first else None
        with patch.object(kind, "train", return_value=5) as patched:
            handle = handle or held(trainer)
            assert (10, 1) == (trainer.train(3), patched.call_count)
            assert 1 == trainer.train.call_count  # type: ignore[attr-defined]  # of the mock
        assert 2 * kind().train(3) == trainer.train(3)
        handle.detach()
        assert "train" not in vars(trainer)


def test_later_changes_of_the_class_apply() -> None:
    """
    A function, a static method or another value is bound as Python binds it.
    """

    class Changed(Trainer):
        pass

    trainer = Changed()
    held(trainer)

    def train(self: Any, steps: int) -> int:
        return steps + (self is trainer)

    Changed.train = train  # type: ignore[method-assign]  # what this is about
    assert 8 == trainer.train(3)
    Changed.train = staticmethod(lambda steps: steps)  # type: ignore[assignment, method-assign]  # likewise
    assert 6 == trainer.train(3)
    Changed.train = classmethod(lambda cls, steps: cls is Changed)  # type: ignore[assignment, method-assign]
    assert 2 == trainer.train(3)
    del Changed.train
    assert 6 == trainer.train(3)


def test_a_deleted_method_is_an_attribute_error() -> None:
    """
    With Python's own message.
    """

    class Bare(Loop):
        def train(self) -> int:
            return 1

    trainer = Bare()
    held(trainer)
    del Bare.train

    with pytest.raises(AttributeError, match="'Bare' object has no attribute 'train'"):
        trainer.train()


def test_a_method_that_an_object_forwards_is_looked_up_there() -> None:
    """
    By `__getattr__`.
    """

    class Forwarding:
        def __init__(self) -> None:
            self.inner = Trainer()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    trainer = Forwarding()
    held(trainer)

    assert 6 == trainer.train(3)
    with patch.object(Trainer, "train", return_value=5):
        assert 10 == trainer.train(3)


def test_a_patch_restored_after_detaching_only_calls() -> None:
    """
    Another patch of the object may outlast the handle and restore ours.
    """
    trainer = Trainer()
    handle = held(trainer)
    with patch.object(trainer, "train", return_value=5):
        handle.detach()
        assert 5 == trainer.train(3)

    assert 3 == trainer.train(3)
    with patch.object(Trainer, "train", return_value=7):
        assert 7 == trainer.train(3)


def test_a_class_patch_restored_after_detaching_only_calls() -> None:
    """
    As for an object.
    """

    class Patched(Trainer):
        def train(self, steps: int) -> int:
            return steps

    handle = Patches(lambda: None)
    handle.install_existing("gymnasium", [("train", Patched, "train", doubled)])
    with patch.object(Patched, "train", return_value=5):
        handle.detach()

    assert 3 == Patched().train(3)


def test_patches_are_removed_in_any_order() -> None:
    """
    Those of the class and of the object are independent.
    """
    for first, second in ((0, 1), (1, 0)):
        trainer, over_class = Trainer(), Patches(lambda: None)
        over_class.install_existing("gymnasium", [("train", Trainer, "train", doubled)])
        handles = [held(trainer), over_class]
        assert 12 == trainer.train(3)

        handles[first].detach()
        assert 6 == trainer.train(3)
        handles[second].detach()
        assert (3, {}) == (trainer.train(3), vars(trainer))


def test_a_copy_is_not_instrumented() -> None:
    """
    A deep copy has the methods of its class, also later ones, and does not refer to the original.
    """
    trainer = Trainer()
    held(trainer)

    copied = copy.deepcopy(trainer)

    assert (6, 3) == (trainer.train(3), copied.train(3))
    with patch.object(Trainer, "train", return_value=5):
        assert (10, 5) == (trainer.train(3), copied.train(3))
    handle = held(copied)
    assert 6 == copied.train(3)
    handle.detach()
    assert 3 == copied.train(3)
    reference = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert reference() is None
