"""Seams: other people's functions and methods, replaced where they stand, and put back."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType, MethodType, TracebackType
from typing import Any, TypeAlias, TypeVar

import wrapt
from typing_extensions import Self

from mttp import integrations
from mttp.errors import InstrumentError

__all__ = [
    "Around",
    "Bound",
    "Patches",
    "PatchedMethod",
    "PatchTarget",
    "PatchedFunction",
    "by_name",
    "handle_in",
    "install",
]

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


class PatchedFunction(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """
    A function or bound method with ours around it, which looks like the original.

    Copying or pickling it gives the original: a copy of an instrumented object is not instrumented.
    After its handle is detached it only calls the original: other code may still hold it.
    """

    __bound_function_wrapper__ = Bound

    def __init__(self, wrapped: Callable[..., Any], around: Around, handle: Patches) -> None:
        super().__init__(wrapped, around, lambda: handle.attached)
        self._self_handle: Patches | None = handle

    @property
    def handle(self) -> Patches | None:
        """What takes it off; None where it is part of a copy, which nothing records."""
        return self._self_handle

    def __copy__(self) -> Any:
        return self.__wrapped__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self.__wrapped__, MethodType) or not inspect.isroutine(self.__wrapped__):
            return self.__wrapped__.__reduce_ex__(protocol)
        return by_name(self.__wrapped__)


class PatchedMethod(PatchedFunction):
    """
    A seam over a method that an object has from its class.

    The method is looked up at each call, so that one that a program patches or overrides later is called.
    """

    def __init__(self, owner: Any, name: str, around: Around, handle: Patches | None) -> None:
        called = _looking_up(owner, name, around, handle)
        wrapt.FunctionWrapper.__init__(self, _method(owner, name), called)
        self._self_handle = handle
        self._self_object = owner
        self._self_attribute = name

    def __getattr__(self, name: str) -> Any:
        return getattr(_method(self._self_object, self._self_attribute), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return PatchedMethod(copy.deepcopy(self._self_object, memo), self._self_attribute, _through, None)


def _looking_up(owner: Any, name: str, around: Around, handle: Patches | None) -> Around:
    """`around`, given the method that the owner's class has at the time of the call."""

    def call(_: Any, __: Any, args: Any, kwargs: Any) -> Any:
        found = type(owner).__dict__.get(name)
        if type(found) is FunctionType:  # nearly always, and in half the time
            method: Any = MethodType(found, owner)
        else:
            method = _method(owner, name)
        if handle is None or handle._attached:
            return around(method, owner, args, kwargs)
        return method(*args, **kwargs)

    return call


def _through(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


def _method(owner: Any, name: str) -> Any:
    """The method as the owner's class has it now, whatever stands in the owner itself."""
    kind = type(owner)
    for base in kind.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, owner, kind)
    if hasattr(kind, "__getattr__"):
        return kind.__getattr__(owner, name)
    raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=owner)


def _seam(owner: Any, name: str, around: Around, handle: Patches) -> PatchedFunction:
    """A seam for that attribute of the owner."""
    if isinstance(owner, type):
        return PatchedFunction(inspect.getattr_static(owner, name), around, handle)
    if name in getattr(owner, "__dict__", ()):
        return PatchedFunction(getattr(owner, name), around, handle)
    return PatchedMethod(owner, name, around, handle)


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """Where a seam stands."""

    owner: Any
    """The object or module."""
    name: str
    """The attribute."""
    seam: PatchedFunction
    """What stands there now."""
    original: Any
    """What stood there; None where the attribute came from the owner's class."""

    @property
    def holds(self) -> bool:
        """Whether the patch is still in place, and not replaced."""
        return vars(self.owner).get(self.name) is self.seam

    def restore(self) -> None:
        """Restore the original, unless other code has replaced the patch."""
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


def install(owner: Any, name: str, seam: PatchedFunction) -> PatchTarget:
    """Put a seam over an attribute; raises InstrumentError where the owner does not let it be replaced."""
    attributes = getattr(owner, "__dict__", None)
    if attributes is None:
        raise InstrumentError(f"{type(owner).__qualname__} has no __dict__ to put a recording {name} in")
    place = PatchTarget(owner, name, seam, attributes.get(name))
    _put(owner, name, seam)
    if not isinstance(owner, type) and getattr(owner, name) is not seam:
        place.restore()
        owned = f"{name!r} of {type(owner).__qualname__}"
        raise InstrumentError(f"{owned} is a property, and can't be replaced; use mttp.wrap instead")
    return place


class Patches:
    """A set of seams, and what else ends with them."""

    def __init__(self, on_detach: Callable[[], None]) -> None:
        self._on_detach = on_detach
        self._places: dict[str, PatchTarget] = {}
        self._missing: dict[str, bool] = {}
        self._attached = True
        self._claims = 1

    def claim(self) -> Self:
        """This handle for one more caller: each detaches on its own."""
        self._claims += 1
        return self

    def install(self, owner: Any, seams: Iterable[tuple[str, str, Around]]) -> None:
        """Put seams, `(label, attribute, around)` each, over attributes of the owner: all of them or none."""
        try:
            for label, name, around in seams:
                self._places[label] = install(owner, name, _seam(owner, name, around, self))
        except BaseException:
            self._restore()
            raise

    def expect(self, library: str, seams: Iterable[tuple[str, Any, str, Around]]) -> None:
        """
        Put seams, `(label, owner, attribute, around)` each, where a library has what they are put over.

        What it has no more under that name is not recorded, which is said once; the other seams are there.
        """
        missing = []
        for label, owner, name, around in seams:
            if getattr(owner, name, None) is not None:
                self._places[label] = install(owner, name, _seam(owner, name, around, self))
            else:
                missing.append(label)
        self._missing |= dict.fromkeys(missing, False)
        if missing:
            _warn(library, tuple(missing))

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


_H = TypeVar("_H", bound=Patches)


def handle_in(owner: Any, kind: type[_H], *names: str) -> _H | None:
    """The attached handle of that kind whose seam stands in one of these attributes, by default in any."""
    attributes = getattr(owner, "__dict__", {})
    for found in map(attributes.get, names) if names else list(attributes.values()):
        if isinstance(found, PatchedFunction) and isinstance(found.handle, kind) and found.handle.attached:
            return found.handle
    return None


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
