"""Recording without changes to the code that plays: `instrument` and `wrap`."""

from __future__ import annotations

import logging
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

__all__ = ["Libraries", "instrument", "instrument_libraries", "wrap"]

_log = logging.getLogger("mttp")

_everything: Libraries | None = None
_attached: list[Libraries] = []


_P = ParamSpec("_P")
_T = TypeVar("_T")
_R_co = TypeVar("_R_co", covariant=True)


class _Recorded(Detach, Protocol[_P, _R_co]):
    """A function that is recorded."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Call it."""


class _Decorator(Protocol):
    """What records the function that it is given."""

    def __call__(self, target: Callable[_P, _T], /) -> _Recorded[_P, _T]:
        """The function, recorded."""


@overload
def instrument(target: Callable[_P, _T], /, **options: Any) -> _Recorded[_P, _T]: ...


@overload
def instrument(*, records: Literal["episode", "reward"], **options: Any) -> _Decorator: ...


@overload
def instrument(target: object = None, /, **options: Any) -> Detach: ...


def instrument(target: Any = None, /, **options: Any) -> Any:
    """
    Record what `target` does from here on; without one, whatever the supported libraries make from here on.

    The target stays the same object of the same class. A library that is not imported yet is not imported:
    it is instrumented when it is.
    The options are those of `mttp.integrations.options.Options`.
    The handle undoes it; instrumenting again gives the same handle back.

    A function comes back recorded, to be called in place of the original: a call is an episode or, where an
    episode goes on, what it returns is a reward. `records="episode"` or `records="reward"` says which it is,
    and makes `instrument` a decorator where no function is given; its options are those of
    `mttp.integrations.functions.FunctionOptions`.

    Episodes go to the session that is open when they start; without `configure`, one is started then.

    Raises InstrumentError for a target that nothing here knows, MissingExtra where no supported library is
    installed.
    """
    if target is None and "records" in options:
        return partial(instrument, **options)
    if target is None:
        return _instrument_everything(options)
    return integrations.integration_of(target).attach(target, **options)


def wrap(env: Any, /, **options: Any) -> Any:
    """
    `env` in a wrapper of its library's own kind, which records; options and errors are those of `instrument`.

    What is wrapped already comes back as it is, unless there are options.
    """
    found: Wrap | None = getattr(integrations.integration_of(env), "wrap", None)
    if found is None:
        kind = f"{type(env).__module__}.{type(env).__qualname__}"
        raise InstrumentError(f"{kind} has no wrappers; mttp.instrument records it as it is")
    return found(env, **options)


def _instrument_everything(options: Mapping[str, Any]) -> Libraries:
    global _everything
    found = [name for name in integrations.LIBRARIES if name in sys.modules or find_spec(name) is not None]
    if not found:
        library = next(iter(integrations.LIBRARIES.values()))
        raise MissingExtra(
            package=library.distribution, extra=library.extra, purpose="mttp.instrument() without a target"
        )
    if _everything is None or not _everything.attached:
        _everything = Libraries()
    _everything.attach(found, options)
    return _everything


def instrument_libraries(packages: Iterable[str], options: Mapping[str, Any]) -> Libraries:
    """Record what these libraries make from here on, each once it is imported."""
    libraries = Libraries()
    libraries.attach(packages, options)
    return libraries


class Libraries:
    """Supported libraries: those that are imported are instrumented at once, the others when they are."""

    def __init__(self) -> None:
        self.attached = True
        self._claims = 0
        self._handles: dict[str, Detach | None] = {}
        self._options: Mapping[str, Any] = {}

    def attach(self, packages: Iterable[str], options: Mapping[str, Any]) -> None:
        """Instrument these libraries; one that is instrumented already takes the options that are given."""
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
        """A library was imported at last; whatever goes wrong is not its importer's fault."""
        if not self.attached:
            return
        try:
            package = module.__name__
            self._handles[package] = integrations.load(package).attach_all(**self._options)
        except Exception as error:
            _log.warning("mttp: %s is not recorded: %r", module.__name__, error)

    def detach(self) -> None:
        """
        Remove all patches, except those that another call holds too; a second call does nothing.

        OpenTelemetry's command may have instrumented a library in which a script instruments a block.
        """
        self.attached = False
        if self in _attached:
            _attached.remove(self)
        for package, handle in self._handles.items():
            if handle is not None and not any(others._handles.get(package) is handle for others in _attached):
                handle.detach()

    def status(self) -> dict[str, bool]:
        """Each seam by name, and whether it holds; a library that is not imported yet by its name alone."""
        found: dict[str, bool] = {}
        for package, handle in self._handles.items():
            found |= {package: False} if handle is None else handle.status()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims -= 1
        if self._claims <= 0:
            self.detach()
