"""`instrument` and `wrap`, which record libraries, objects and functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, overload

import wrapt
from typing_extensions import ParamSpec, Self

from mttp import integrations
from mttp.errors import InstrumentError, MissingExtra
from mttp.integrations.contract import Detach, Wrap
from mttp.integrations.options import Options
from mttp.model.interrupts import raise_interrupt
from mttp.model.live import Live
from mttp.model.log import log

__all__ = ["Libraries", "instrument", "instrument_libraries", "wrap"]


_everything: Libraries | None = None
_attached: list[Libraries] = []


_P = ParamSpec("_P")
_T = TypeVar("_T")
_R_co = TypeVar("_R_co", covariant=True)


class _Recorded(Detach, Protocol[_P, _R_co]):
    """A recorded function."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Call the function and record the call."""


class _Decorator(Protocol):
    """A decorator that records a function."""

    def __call__(self, target: Callable[_P, _T], /) -> _Recorded[_P, _T]:
        """Return the recorded function."""


@overload
def instrument(target: Callable[_P, _T], /, **options: Any) -> _Recorded[_P, _T]: ...


@overload
def instrument(*, records: Literal["episode", "reward"], **options: Any) -> _Decorator: ...


@overload
def instrument(target: object = None, /, **options: Any) -> Detach: ...


def instrument(target: Any = None, /, **options: Any) -> Any:
    """
    Record an environment, trainer, model, client or function from now on.

    Without a target, every object that the supported libraries create from now on is recorded; a library that
    is not imported yet is instrumented when it is imported.
    The target stays the same object of the same class.
    Options are those of `mttp.integrations.options.Options`.
    Returns a handle whose `detach` removes the patches; a second call for the target returns it again.

    A function is not changed: the recorded function is returned, to be called in its place.
    Outside an episode each call is an episode; inside one, the return value is a reward.
    `records="episode"` or `records="reward"` sets this; without a function, `instrument` is then a decorator.
    Options for a function are those of `mttp.integrations.functions.FunctionOptions`.

    Each episode belongs to the session that is open when it starts; without `configure`, a session with the
    default transport is opened.

    Raises InstrumentError for an unsupported target or a wrong option, and MissingExtra if the library, or
    without a target every supported library, is not installed.
    """
    if target is None and "records" in options:
        return partial(instrument, **options)
    if target is None:
        return _instrument_everything(options)
    return integrations.integration_of(target).attach(target, **options)


def wrap(env: Any, /, **options: Any) -> Any:
    """
    Return `env` in a recording wrapper of its library's own type.

    Options and errors are those of `instrument`.
    An env that is already such a wrapper is returned unchanged, unless options are given.
    """
    wrapper: Wrap | None = getattr(integrations.integration_of(env), "wrap", None)
    if wrapper is None:
        kind = f"{type(env).__module__}.{type(env).__qualname__}"
        raise InstrumentError(f"{kind} cannot be wrapped; use mttp.instrument, which records it in place")
    return wrapper(env, **options)


def _instrument_everything(options: Mapping[str, Any]) -> Libraries:
    global _everything
    names = [name for name in integrations.LIBRARIES if name in sys.modules or find_spec(name) is not None]
    if not names:
        library = next(iter(integrations.LIBRARIES.values()))
        raise MissingExtra(
            package=library.distribution, extra=library.extra, purpose="mttp.instrument() without a target"
        )
    if _everything is None or not _everything.attached:
        _everything = Libraries()
    _everything.attach(names, options)
    return _everything


def instrument_libraries(packages: Iterable[str], options: Mapping[str, Any]) -> Libraries:
    """Record every object that these libraries create, from the import of each library on."""
    libraries = Libraries()
    libraries.attach(packages, options)
    return libraries


class Libraries(Live):
    """The handle for several libraries, each of which is instrumented as soon as it is imported."""

    def __init__(self) -> None:
        self.attached = True
        self._claims = 0
        self._handles: dict[str, Detach | None] = {}
        self._options: Mapping[str, Any] = {}

    def attach(self, packages: Iterable[str], options: Mapping[str, Any]) -> None:
        """Instrument these libraries; new options replace those of a library that is already instrumented."""
        Options.of(options)
        self._claims += 1
        if self not in _attached:
            _attached.append(self)
        self._options = options or self._options
        for package in packages:
            if package in sys.modules:
                self._handles[package] = integrations.load(package).attach_all(**options)
            elif package not in self._handles:
                self._handles[package] = None
                wrapt.register_post_import_hook(self._imported, package)

    def _imported(self, module: Any) -> None:
        """Instrument a library after its import; errors are logged, so that the import succeeds."""
        if not self.attached:
            return
        try:
            package = module.__name__
            self._handles[package] = integrations.load(package).attach_all(**self._options)
        except Exception as error:
            raise_interrupt(error)
            log.warning("mttp: %s is not recorded: %r", module.__name__, error)

    def detach(self) -> None:
        """
        Remove all patches, except those that another handle also holds; a second call does nothing.

        For example, `opentelemetry-instrument` keeps a library patched that a script instruments for a block.
        """
        self.attached = False
        if self in _attached:
            _attached.remove(self)
        for package, handle in self._handles.items():
            if handle is not None and not any(others._handles.get(package) is handle for others in _attached):
                handle.detach()

    def status(self) -> dict[str, bool]:
        """
        Return each patch by name, and whether calls still pass through it.

        A library that is not imported yet is listed by its name, as False.
        """
        patches: dict[str, bool] = {}
        for package, handle in self._handles.items():
            patches |= {package: False} if handle is None else handle.status()
        return patches

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims -= 1
        if self._claims <= 0:
            self.detach()
