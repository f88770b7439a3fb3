"""Seams: other people's functions and methods, replaced where they stand, and put back."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import MethodType, TracebackType
from typing import Any, TypeAlias

import wrapt
from typing_extensions import Self

from mttp import integrations
from mttp.errors import InstrumentError

__all__ = ["Around", "Bound", "Handle", "Place", "Seam", "by_name", "install"]

_log = logging.getLogger("mttp")

Around: TypeAlias = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""What runs instead: it is given what it replaces, the instance, and the call's arguments."""


def by_name(function: Callable[..., Any]) -> tuple[Any, ...]:
    """How pickle is to find a function again."""
    from pkgutil import resolve_name

    return resolve_name, (f"{function.__module__}:{function.__qualname__}",)


class Bound(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """A method that is surrounded in its class; a copy of it is that of a copy of its object."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        method = self.__wrapped__
        if not isinstance(method, MethodType):
            return self
        return getattr(copy.deepcopy(method.__self__, memo), method.__name__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        method = self.__wrapped__
        return method.__reduce_ex__(protocol) if isinstance(method, MethodType) else by_name(method)


class Seam(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """
    A function or bound method with ours around it, which looks like the original.

    Copying or pickling it gives the original: a copy of an instrumented object is not instrumented.
    """

    __bound_function_wrapper__ = Bound

    def __init__(self, wrapped: Callable[..., Any], around: Around, handle: Handle) -> None:
        super().__init__(wrapped, around)
        self._self_handle: Handle = handle

    @property
    def handle(self) -> Handle:
        """What takes it off."""
        return self._self_handle

    def __copy__(self) -> Any:
        return self.__wrapped__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self.__wrapped__, MethodType) or not inspect.isroutine(self.__wrapped__):
            return self.__wrapped__.__reduce_ex__(protocol)
        return by_name(self.__wrapped__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a seam stands."""

    owner: Any
    """The object or module."""
    name: str
    """The attribute."""
    seam: Seam
    """What stands there now."""
    original: Any
    """What stood there; None where the attribute came from the owner's class."""

    @property
    def holds(self) -> bool:
        """Whether it still stands there: nobody put something else over it."""
        return vars(self.owner).get(self.name) is self.seam

    def restore(self) -> None:
        """Put back what was there, unless somebody else's replacement is there by now."""
        if not self.holds:
            return
        if self.original is None:
            _remove(self.owner, self.name)
        else:
            _put(self.owner, self.name, self.original)


def _put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute, past what an instance's class makes of that; only a class has to be asked."""
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value


def _remove(owner: Any, name: str) -> None:
    if isinstance(owner, type):
        delattr(owner, name)
    else:
        del vars(owner)[name]


def install(owner: Any, name: str, seam: Seam) -> Place:
    """Put a seam over an attribute; raises InstrumentError where the owner does not let it be replaced."""
    attributes = getattr(owner, "__dict__", None)
    if attributes is None:
        raise InstrumentError(f"{type(owner).__qualname__} has no __dict__ to put a recording {name} in")
    place = Place(owner, name, seam, attributes.get(name))
    _put(owner, name, seam)
    if not isinstance(owner, type) and getattr(owner, name) is not seam:
        place.restore()
        owned = f"{name!r} of {type(owner).__qualname__}"
        raise InstrumentError(f"{owned} is a property, and can't be replaced; use mttp.wrap instead")
    return place


class Handle:
    """A set of seams, and what else ends with them."""

    def __init__(self, on_detach: Callable[[], None]) -> None:
        self._on_detach = on_detach
        self._places: dict[str, Place] = {}
        self._missing: dict[str, bool] = {}
        self._attached = True
        self._claims = 1

    def claim(self) -> Self:
        """This handle for somebody else too: the end of one `with` block takes nothing from another's."""
        self._claims += 1
        return self

    def install(self, owner: Any, seams: Iterable[tuple[str, str, Around]]) -> None:
        """Put seams, `(label, attribute, around)` each, over attributes of the owner: all of them or none."""
        try:
            for label, name, around in seams:
                self._places[label] = install(owner, name, Seam(getattr(owner, name), around, self))
        except BaseException:
            self._restore()
            raise

    def expect(self, library: str, seams: Iterable[tuple[str, Any, str, Around]]) -> None:
        """
        Put seams, `(label, owner, attribute, around)` each, where a library has what they are put over.

        What it has no more under that name is not recorded, which is said once; the other seams are there.
        """
        for label, owner, name, around in seams:
            is_class = isinstance(owner, type)
            found = inspect.getattr_static(owner, name, None) if is_class else getattr(owner, name, None)
            if found is not None:
                self._places[label] = install(owner, name, Seam(found, around, self))
            else:
                self._missing[label] = False
        if self._missing:
            _warn(library, tuple(self._missing))

    def cover(self, label: str, owner: Any, name: str, like: str) -> None:
        """Put the seam that is known as `like` over another name of the same function."""
        self._places[label] = install(owner, name, self._places[like].seam)

    def detach(self) -> None:
        """Take everything off again; a second call does nothing."""
        if self._attached:
            self._attached = False
            self._restore()
            self._on_detach()
            self._on_detach = _nothing

    def _restore(self) -> None:
        """Put back everything, and hold nothing of it any more."""
        for place in reversed(self._places.values()):
            place.restore()
        self._missing |= dict.fromkeys(self._places, False)
        self._places.clear()

    @property
    def attached(self) -> bool:
        """Whether it has not been detached."""
        return self._attached

    def status(self) -> dict[str, bool]:
        """Each seam by name, and whether it holds: whether calls pass through it."""
        return {label: place.holds for label, place in self._places.items()} | self._missing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims -= 1
        if self._claims <= 0:
            self.detach()

    def __repr__(self) -> str:
        held = ", ".join(f"{label} {'held' if held else 'gone'}" for label, held in self.status().items())
        return f"<{'attached' if self._attached else 'detached'}: {held}>"


def _nothing() -> None:
    """Nothing ends any more with a handle that was detached."""


@functools.cache
def _warn(library: str, missing: tuple[str, ...]) -> None:
    """Say, once, which parts of a library are not recorded since it has them no more."""
    known = integrations.LIBRARIES[library]
    try:
        found = version(known.distribution)
    except PackageNotFoundError:
        found = "of unknown version"
    _log.warning(
        "mttp: %s %s has no %s: what passed through there is not recorded, the rest is (tested: %s)",
        known.distribution,
        found,
        ", ".join(missing),
        known.tested,
    )
