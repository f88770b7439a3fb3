"""What a spec names under `use`: found, trusted, and fit for the sample."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from mttp.errors import SpecError
from mttp.rewards.decorators import mark_of
from mttp.rewards.document import ComponentEntry, SpecDocument
from mttp.rewards.folder import Folder
from mttp.rewards.loading import nearest
from mttp.rewards.modules import locate
from mttp.rewards.trust import VARIABLE, Trust

__all__ = ["Policy", "check_signature", "original", "resolve"]

Fail: TypeAlias = Callable[[str], SpecError]
"""Makes the error for what is wrong with a target, at its place."""


@dataclass(frozen=True)
class Policy:
    """Which code a spec may import and call."""

    folder: Path | None
    """The spec's folder; None where it has none."""
    trust: Trust
    """What the user trusts."""

    @cached_property
    def beside(self) -> Folder | None:
        """The modules beside the spec."""
        return None if self.folder is None else Folder.at(self.folder)

    def has_beside(self, name: str) -> bool:
        """Whether a module of this name lies beside the spec."""
        return self.beside is not None and self.beside.has(name)

    def may_import(self, name: str) -> bool:
        """Whether a module may be imported: it lies beside the spec in a trusted directory, or is trusted."""
        if self.has_beside(name):
            return self.folder is not None and self.trust.has_directory(self.folder)
        return self.trust.has_module(name)

    def owns(self, found: object) -> bool:
        """Whether the code of an object is that of a module which may be imported."""
        if self.trust.everything:
            return True
        owner = _owner(found)
        if self.beside is not None and owner.startswith(f"{self.beside.package}."):
            return True
        return self.trust.has_module(owner)


def resolve(use: str, policy: Policy, fail: Fail) -> Callable[..., Any]:
    """
    The function that `use` names; raises SpecError where there is none, or it may not be called.

    Each object on the way must be of a module that may be imported, since looking up an attribute
    may run code. The last one may be of another module if a decorator of mttp marks it.
    """
    module_name, _, name = use.partition(":")
    found: Any = _module(module_name, policy, fail)
    way = module_name
    for part in name.split("."):
        if not policy.owns(found):
            raise fail(_foreign(use, way, found))
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [known for known in dir(found) if not known.startswith("_")]
            raise fail(f"{way} has no {part}{nearest(part, names)}") from None
        except (Exception, SystemExit) as error:
            raise fail(f"looking up {part} in {way} raised {_said(error)}") from error
        way = f"{way}{':' if way == module_name else '.'}{part}"
    if inspect.isclass(found) or not callable(found):
        raise fail(f"{use} is {_kind(found)}, not a function")
    if mark_of(found) is None and not policy.owns(found):
        raise fail(_foreign(use, way, found))
    return found  # type: ignore[no-any-return] # it is callable


def original(function: Any) -> Any:
    """What a function wraps, at the bottom of decorators, partials and methods."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        if isinstance(function, (functools.partial, functools.partialmethod)):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        else:
            function = getattr(function, "__wrapped__", function)
    return function


def _module(name: str, policy: Policy, fail: Fail) -> Any:
    beside = policy.beside if policy.has_beside(name) else None
    if beside is None and locate(name, None) is None:
        raise fail(_missing(name, policy))
    if not policy.may_import(name):
        raise fail(_untrusted(name) if beside is None else _elsewhere(beside.path, policy.trust.package))
    try:
        return import_module(name) if beside is None else beside.load(name)
    except ModuleNotFoundError as error:
        missing = error.name if error.name and not name.startswith(error.name) else None
        raise fail(
            f"importing {name} needs {missing}, which is not installed" if missing else str(error)
        ) from error
    except (Exception, SystemExit) as error:
        raise fail(f"importing {name} raised {_said(error)}") from error


def _missing(name: str, policy: Policy) -> str:
    if policy.folder is None:
        return f"there is no module {name}: the spec has no file, so it must be installed"
    known = [path.stem for path in policy.folder.glob("*.py")]
    return f"there is no module {name}, neither in {policy.folder} nor installed{nearest(name, known)}"


def _untrusted(name: str) -> str:
    return (
        f"the module {name} is not imported: it does not lie beside the spec, and a spec can't allow it. "
        f"If you trust it, {_advice(name)}"
    )


def _elsewhere(folder: Path, package: str | None) -> str:
    advice = "say --trust or trust=True, which trusts all code" if package is None else _advice(package)
    return (
        f"the modules in {folder} are not imported: that is not in the directory of the spec that you "
        f"named, nor below it. If you trust them, {advice}"
    )


def _foreign(use: str, way: str, found: object) -> str:
    """Why an object that a module merely has is not called, or looked into."""
    what = f"{use} is not called" if way == use else f"{use} is not called: {way} is not looked into"
    owner = _owner(found)
    if owner in _NO_OWNER:
        return f"{what}: its module can't be told. Call it in a function beside the spec"
    return (
        f"{what}: it belongs to the module {owner}, which does not lie beside the spec. "
        f"Call it in a function beside the spec; or, if you trust that module, {_advice(owner)}"
    )


def _advice(module: str) -> str:
    return f"say --trust-module {module}, trust={[module]!r} or {VARIABLE}={module}"


_NO_OWNER: Final = ("", "builtins", "__main__")
"""What an object says its module is where it has none by which it can be trusted."""


def _owner(found: object) -> str:
    """The name of the module whose code an object is; empty where that can't be told."""
    if inspect.ismodule(found):
        return found.__name__
    function = original(found)
    names = getattr(function, "__globals__", None)
    if inspect.isfunction(function) and isinstance(names, dict):
        return str(names.get("__name__", ""))
    kind = function if inspect.isclass(function) or inspect.isroutine(function) else type(function)
    return str(getattr(kind, "__module__", None) or "")


def _kind(found: object) -> str:
    return f"the class {found.__name__}" if inspect.isclass(found) else f"a {type(found).__name__}"


def _said(error: BaseException) -> str:
    """An exception in a line, with the place in the code where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace is not None else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {error}{place}"


def optional_names(function: Callable[..., Any]) -> list[str]:
    """The arguments of a function that have a default."""
    return [part.name for part in _parameters(function) if part.default is not part.empty]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name."""
    return any(part.name == name for part in _parameters(function))


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """The arguments of a function; what is written in C may not say."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def check_signature(
    function: Callable[..., Any], entry: ComponentEntry, document: SpecDocument, fail: Fail
) -> None:
    """Raise SpecError where a function asks for what no sample has, or does not take its parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # what is written in C may not say
        return
    named = [part for part in parameters if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)]
    takes_any = any(part.kind is part.VAR_KEYWORD for part in parameters)
    known = [part.name for part in named]
    for name in entry.params:
        if name not in known and not takes_any:
            raise fail(f"{_signature(function)} does not take the parameter {name!r}{nearest(name, known)}")
    if entry.arity == "output-truth":
        _check_positions(function, parameters, fail)
        return
    if not document.inputs:
        return
    given = {*_names(entry, document), *entry.params}
    for part in named:
        if part.name not in given and part.default is part.empty:
            raise fail(
                f"{_signature(function)} needs {part.name!r}, which is no input of the spec "
                f"and no parameter{nearest(part.name, given)}"
            )


def _names(entry: ComponentEntry, document: SpecDocument) -> Sequence[str]:
    """What a function may name: the inputs, and where it takes many samples their plurals."""
    names = list(document.inputs)
    return [*names, *(f"{name}s" for name in names)] if entry.arity == "batch" or entry.relative else names


def _check_positions(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter], fail: Fail
) -> None:
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(part.kind is part.VAR_POSITIONAL for part in parameters):
        return
    if len([part for part in parameters if part.kind in by_position]) < 2:
        raise fail(f"{_signature(function)} can't be called as (output, truth)")


def _signature(function: Callable[..., Any]) -> str:
    name = getattr(original(function), "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"
