"""Patches of functions and methods of other libraries, and their removal."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType, MethodType, TracebackType
from typing import Any, TypeAlias, TypeVar

import wrapt
from typing_extensions import Self

from mttp import integrations
from mttp.errors import InstrumentError
from mttp.model.live import Live
from mttp.model.log import log

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


Around: TypeAlias = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""A wrapper: called with the original, the instance, and the call's positional and keyword arguments."""


def by_name(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return how pickle finds a function: by its module and qualified name."""
    from pkgutil import resolve_name

    return resolve_name, (f"{function.__module__}:{function.__qualname__}",)


class Bound(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """A bound method of a patched class; its copy is the method of a copy of the object."""

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
    A function or bound method with a wrapper around it; its name and signature are the original's.

    A copy or pickle of it is the original: a copy of an instrumented object is not instrumented.
    After its handle is detached, it only calls the original, because other code may still hold it.
    """

    __bound_function_wrapper__ = Bound

    def __init__(self, wrapped: Callable[..., Any], around: Around, handle: Patches) -> None:
        super().__init__(wrapped, around, lambda: handle.attached)
        self._self_handle: Patches | None = handle

    @property
    def handle(self) -> Patches | None:
        """The handle that removes the patch; None in a copy, which is not recorded."""
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
    A patch, on an object, of a method of its class.

    The class's method is looked up at each call, so that later patches and overrides of it apply.
    """

    def __init__(self, owner: Any, name: str, around: Around, handle: Patches | None) -> None:
        wrapper = _looking_up(owner, name, around, handle)
        wrapt.FunctionWrapper.__init__(self, _method(owner, name), wrapper)
        self._self_handle = handle
        self._self_object = owner
        self._self_attribute = name

    def __getattr__(self, name: str) -> Any:
        return getattr(_method(self._self_object, self._self_attribute), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = copy.deepcopy(self._self_object, memo)
        return PatchedMethod(copied, self._self_attribute, _call_original, None)


def _looking_up(owner: Any, name: str, around: Around, handle: Patches | None) -> Around:
    """Return a wrapper that calls `around` with the method that the owner's class has at call time."""

    def call(_: Any, __: Any, args: Any, kwargs: Any) -> Any:
        function = type(owner).__dict__.get(name)
        if type(function) is FunctionType:  # the usual case, in half the time of `_method`
            method: Any = MethodType(function, owner)
        else:
            method = _method(owner, name)
        if handle is None or handle._attached:
            return around(method, owner, args, kwargs)
        return method(*args, **kwargs)

    return call


def _call_original(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


def _method(owner: Any, name: str) -> Any:
    """Return the bound method of the owner's class, ignoring the owner's own attributes."""
    kind = type(owner)
    for base in kind.__mro__:
        if name in base.__dict__:
            attribute = base.__dict__[name]
            bind = getattr(type(attribute), "__get__", None)
            return attribute if bind is None else bind(attribute, owner, kind)
    if hasattr(kind, "__getattr__"):
        return kind.__getattr__(owner, name)
    raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=owner)


def _patch(owner: Any, name: str, around: Around, handle: Patches) -> PatchedFunction:
    """Create the patch for an attribute of the owner."""
    if isinstance(owner, type):
        return PatchedFunction(inspect.getattr_static(owner, name), around, handle)
    if name in getattr(owner, "__dict__", ()):
        return PatchedFunction(getattr(owner, name), around, handle)
    return PatchedMethod(owner, name, around, handle)


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """The place of an installed patch."""

    owner: Any
    """The patched object, class or module."""
    name: str
    """The patched attribute."""
    patch: PatchedFunction
    """The patch."""
    original: Any
    """The attribute's value before; None where the attribute came from the owner's class."""

    @property
    def holds(self) -> bool:
        """Whether the patch is still in place."""
        return vars(self.owner).get(self.name) is self.patch

    def restore(self) -> None:
        """Restore the original, unless other code has replaced the patch."""
        if not self.holds:
            return
        if self.original is None:
            _remove(self.owner, self.name)
        else:
            _put(self.owner, self.name, self.original)


def _put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a class, or write it to an instance's `__dict__`, past its `__setattr__`."""
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value


def _remove(owner: Any, name: str) -> None:
    if isinstance(owner, type):
        delattr(owner, name)
    else:
        del vars(owner)[name]


def install(owner: Any, name: str, patch: PatchedFunction) -> PatchTarget:
    """Put a patch in place of an attribute; raises InstrumentError if the owner does not allow it."""
    attributes = getattr(owner, "__dict__", None)
    if attributes is None:
        raise InstrumentError(f"{type(owner).__qualname__} has no __dict__, so that {name} can't be patched")
    place = PatchTarget(owner, name, patch, attributes.get(name))
    _put(owner, name, patch)
    if not isinstance(owner, type) and getattr(owner, name) is not patch:
        place.restore()
        owned = f"{name!r} of {type(owner).__qualname__}"
        raise InstrumentError(f"{owned} is a property and can't be patched; use mttp.wrap instead")
    return place


class Patches(Live):
    """The handle for a set of patches; `on_detach` is called after they are removed."""

    def __init__(self, on_detach: Callable[[], None]) -> None:
        self._on_detach = on_detach
        self._places: dict[str, PatchTarget] = {}
        self._missing: dict[str, bool] = {}
        self._attached = True
        self._claims = 1

    def claim(self) -> Self:
        """Return this handle for one more caller; the last `with` block that ends detaches it."""
        self._claims += 1
        return self

    def install(self, owner: Any, patches: Iterable[tuple[str, str, Around]]) -> None:
        """Patch attributes of the owner, all or none; each patch is `(label, attribute, around)`."""
        try:
            for label, name, around in patches:
                self._places[label] = install(owner, name, _patch(owner, name, around, self))
        except BaseException:
            self._restore()
            raise

    def install_existing(self, library: str, patches: Iterable[tuple[str, Any, str, Around]]) -> None:
        """
        Patch the attributes that the library has; each patch is `(label, owner, attribute, around)`.

        Attributes that this version of the library lacks are named in one warning.
        """
        missing = []
        for label, owner, name, around in patches:
            if getattr(owner, name, None) is not None:
                self._places[label] = install(owner, name, _patch(owner, name, around, self))
            else:
                missing.append(label)
        self._missing |= dict.fromkeys(missing, False)
        if missing:
            _warn(library, tuple(missing))

    def install_again(self, label: str, owner: Any, name: str, like: str) -> None:
        """Install the patch with the label `like` at another name of the same function."""
        self._places[label] = install(owner, name, self._places[like].patch)

    def detach(self) -> None:
        """Remove all patches; a second call does nothing."""
        if self._attached:
            self._attached = False
            self._restore()
            self._on_detach()
            self._on_detach = _nothing

    def _restore(self) -> None:
        """Restore all originals and release them."""
        for place in reversed(self._places.values()):
            place.restore()
        self._missing |= dict.fromkeys(self._places, False)
        self._places.clear()

    @property
    def attached(self) -> bool:
        """Whether the handle is not detached."""
        return self._attached

    def status(self) -> dict[str, bool]:
        """Return each patch by name, and whether calls still pass through it."""
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
        patches = ", ".join(f"{label} {'held' if live else 'gone'}" for label, live in self.status().items())
        return f"<{'attached' if self._attached else 'detached'}: {patches}>"


_H = TypeVar("_H", bound=Patches)


def handle_in(owner: Any, kind: type[_H], *names: str) -> _H | None:
    """Return the attached handle of that class that patches one of these attributes, by default any."""
    attributes = getattr(owner, "__dict__", {})
    for patch in map(attributes.get, names) if names else list(attributes.values()):
        if isinstance(patch, PatchedFunction) and isinstance(patch.handle, kind) and patch.handle.attached:
            return patch.handle
    return None


def _nothing() -> None:
    """The `on_detach` of a handle that is already detached."""


@functools.cache
def _warn(library: str, missing: tuple[str, ...]) -> None:
    """Warn, once, which attributes a version of a library lacks."""
    known = integrations.LIBRARIES[library]
    try:
        installed = version(known.distribution)
    except PackageNotFoundError:
        installed = "of unknown version"
    log.warning(
        "mttp: %s %s has no %s: what mttp records there is missing, the rest is recorded (tested: %s)",
        known.distribution,
        installed,
        ", ".join(missing),
        known.tested,
    )
