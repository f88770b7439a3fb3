"""The code that scores: everything that a function reaches in its own package or folder, and its digest."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from mttp.rewards.bindings import Bound, Chain, Imported, Names, names_in, names_of
from mttp.rewards.folder import find
from mttp.rewards.modules import Module, locate
from mttp.rewards.syntax import normal
from mttp.rewards.targets import original

__all__ = ["Code", "Coverage", "of_function", "of_target"]

Coverage: TypeAlias = Literal["full", "partial", "opaque"]
"""How much of the code was read: all that is the user's own, some of it, or none that can be told."""

_DYNAMIC: Final = {"eval", "exec", "globals", "locals", "__import__", "compile"}
_OWN_LIBRARY: Final = "mttp"


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one component."""

    parts: tuple[tuple[str, str], ...] = ()
    """Each definition that it reaches, as (module:name, normal form), sorted."""
    coverage: Coverage = "full"
    """How much of it that is."""
    gaps: tuple[str, ...] = ()
    """What is missing, in words."""


def of_target(use: str, folder: Path | None, distributions: Iterable[str] = ()) -> Code:
    """The code of what a spec names under `use`; nothing is imported."""
    name, _, attribute = use.partition(":")
    module = locate(name, folder)
    if module is None or module.path is None:
        return Code(coverage="opaque", gaps=(f"{use} has no Python source",))
    return _code(module, attribute.partition(".")[0], distributions)


def of_function(function: Callable[..., Any], distributions: Iterable[str] = ()) -> Code:
    """The code of a function that was given in Python."""
    found = original(function)
    code = getattr(found, "__code__", None)
    qualname = str(getattr(found, "__qualname__", type(found).__name__))
    for mark, kind in (("<lambda>", "a lambda"), ("<locals>", "a closure")):
        if mark in qualname:
            return Code(coverage="opaque", gaps=(f"{qualname} is {kind}",))
    module = _module_of(found) if code is not None or not inspect.isroutine(found) else None
    if module is None or (code is not None and not _is_in(module, code)):
        return Code(coverage="opaque", gaps=(f"{qualname} has no Python source that can be found",))
    found = _code(module, qualname.partition(".")[0], distributions)
    return _with_state(function, found)


def _module_of(found: Any) -> Module | None:
    code = getattr(found, "__code__", None)
    module = sys.modules.get(str(getattr(found, "__module__", "")))
    file = code.co_filename if code is not None else getattr(module, "__file__", None)
    if not file or not str(file).endswith(".py") or not Path(file).is_file():
        return None
    located = locate(str(getattr(found, "__module__", "")), None)
    if located is not None and located.path is not None and located.path.resolve() == Path(file).resolve():
        return located
    return Module(Path(file).stem, Path(file), Path(file).resolve().parent)


def _is_in(module: Module, code: Any) -> bool:
    """Whether a function stands in its file where it says."""
    tree = _tree(module.path)
    starts = {
        min([node.lineno, *(part.lineno for part in node.decorator_list)])
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name
    }
    return code.co_firstlineno in starts


def _with_state(function: Any, code: Code) -> Code:
    """The code with what partials fix of its arguments; the state of an object can't be read."""
    parts, gaps = list(code.parts), list(code.gaps)
    while isinstance(function, functools.partial):
        fixed = [*enumerate(function.args), *sorted(function.keywords.items())]
        parts.append(("partial", ascii([(name, _said(value)) for name, value in fixed])))
        gaps += [
            f"a partial fixes {name}, which is no plain data" for name, value in fixed if not _is_plain(value)
        ]
        function = function.func
    if not inspect.isroutine(original(function)) or getattr(function, "__self__", None) is not None:
        gaps.append("it is a method or an object, whose state is not in its code")
    coverage: Coverage = "partial" if gaps and code.coverage == "full" else code.coverage
    return Code(tuple(sorted(parts)), coverage, tuple(gaps))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool, bytes))


def _said(value: object) -> object:
    """What is fixed, if it is the same in every process; else its type."""
    return value if _is_plain(value) else type(value).__name__


def _code(module: Module, name: str, distributions: Iterable[str]) -> Code:
    reach = _Reach(module, frozenset(_key(one) for one in distributions))
    if reach.names(module.name) is None:
        return Code(coverage="opaque", gaps=(f"{module.path} is not Python that can be read",))
    try:
        reach.follow(module.name, name)
    except RecursionError:
        return Code(coverage="opaque", gaps=(f"what {module.name}:{name} reaches is nested too deeply",))
    opacity = reach.opacity(module.name, name)
    coverage: Coverage = "opaque" if opacity else "partial" if reach.gaps else "full"
    return Code(tuple(sorted(reach.parts.items())), coverage, (*opacity, *sorted(reach.gaps)))


@lru_cache(maxsize=256)
def _parsed(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _tree(path: Path | None) -> ast.Module | None:
    try:
        return _parsed(path.read_bytes()) if path is not None else None
    except OSError:
        return None


class _Reach:
    """What is reached from one function, in its own package or folder."""

    def __init__(self, module: Module, distributions: frozenset[str]) -> None:
        self.parts: dict[str, str] = {}
        self.gaps: set[str] = set()
        self._module = module
        self._distributions = distributions
        self._names: dict[str, Names | None] = {}
        self._seen: set[tuple[str, str]] = set()

    def names(self, module: str) -> Names | None:
        """The names of a module of its own."""
        if module not in self._names:
            tree = _tree(self._path(module))
            self._names[module] = names_of(tree) if tree is not None else None
        return self._names[module]

    def follow(self, module: str, name: str) -> None:
        """A name of a module of its own, and whatever that needs."""
        names = self.names(module)
        if names is None or (module, name) in self._seen:
            return
        self._seen.add((module, name))
        if (module, "") not in self._seen:
            self._seen.add((module, ""))
            for statement in names.effects:
                self._add(f"{module}:", statement, module)
        if name in names.bound:
            for bound in names.bound[name]:
                self._follow_bound(module, name, bound)
        elif self._path(f"{module}.{name}") is not None:
            self._whole(f"{module}.{name}")
        else:
            self._follow_stars(module, name, names)

    def _follow_bound(self, module: str, name: str, bound: Bound) -> None:
        if isinstance(bound, Imported):
            self._note(module, name, bound)
            self._follow_import(module, bound, ())
        else:
            self._add(f"{module}:{name}", bound, module)

    def _add(self, key: str, statement: ast.stmt, module: str) -> None:
        self._say(key, normal(statement))
        chains, imported = names_in(statement)
        for chain in sorted(chains):
            self._use(module, chain, imported)

    def _say(self, key: str, said: str) -> None:
        """Add to what a name stands for."""
        self.parts[key] = f"{self.parts[key]}\n{said}" if key in self.parts else said

    def _note(self, module: str, name: str, origin: Imported) -> None:
        """Where a name is imported from: other code may be called by the same name."""
        if (key := (module, f"{name} {origin}")) not in self._seen:
            self._seen.add(key)
            self._say(f"{module}:{name}", str(origin))

    def _use(self, module: str, chain: Chain, imported: dict[str, Imported]) -> None:
        names = self.names(module)
        if chain[0] in imported:
            self._follow_import(module, imported[chain[0]], chain[1:])
        elif names is not None and chain[0] in names.bound:
            self._use_bound(module, chain, names.bound[chain[0]])
        elif hasattr(builtins, chain[0]):
            if chain[0] in _DYNAMIC:
                self.gaps.add(f"{module} calls {chain[0]}, which can reach anything")
        elif names is not None:
            self._follow_stars(module, chain[0], names)

    def _use_bound(self, module: str, chain: Chain, bound: Iterable[Bound]) -> None:
        for one in bound:
            if isinstance(one, Imported):
                self._note(module, chain[0], one)
                self._follow_import(module, one, chain[1:])
        self._follow_statements(module, chain[0])

    def _follow_statements(self, module: str, name: str) -> None:
        """Those statements for a name that are no imports."""
        names = self.names(module)
        if names is not None and any(not isinstance(one, Imported) for one in names.bound[name]):
            self.follow(module, name)

    def _follow_stars(self, module: str, name: str, names: Names) -> None:
        for star in names.stars:
            self._note(module, "*", star)
            origin = self._absolute(module, star)
            found = self.names(origin) if self._path(origin) is not None else None
            if found is not None and (name in found.bound or found.stars):
                self.follow(origin, name)
            elif found is None:
                self._foreign(origin)

    def _follow_import(self, module: str, imported: Imported, taken: Chain) -> None:
        origin = self._absolute(module, imported)
        chain = (imported.name, *taken) if imported.name else taken
        while chain and self._path(f"{origin}.{chain[0]}".strip(".")) is not None:
            origin, chain = f"{origin}.{chain[0]}".strip("."), chain[1:]
        if self._path(origin) is None:
            self._foreign(origin or (chain[0] if chain else ""))
            if chain and chain[-1] == "import_module":
                self.gaps.add(f"{module} calls import_module, which can reach anything")
        elif chain:
            self.follow(origin, chain[0])
        else:
            self._whole(origin)

    def _whole(self, module: str) -> None:
        """A module that is passed around: any of its names may be meant."""
        names = self.names(module)
        for name in names.bound if names is not None else ():
            self.follow(module, name)

    def _absolute(self, module: str, imported: Imported) -> str:
        if not imported.level:
            return imported.module
        path = self._path(module)
        package = (
            module.split(".") if path is not None and path.name == "__init__.py" else module.split(".")[:-1]
        )
        package = package[: len(package) - imported.level + 1]
        return ".".join([*package, *([imported.module] if imported.module else [])])

    def _path(self, module: str) -> Path | None:
        """The source of a module, if it is one of its own."""
        own = self._module
        if module == own.name:
            return own.path
        if own.alone or own.root is None or not module:
            return None
        top = own.name.partition(".")[0]
        if not own.beside and (own.root / top).is_dir() and module.partition(".")[0] != top:
            return None
        found = find(own.root, module)
        return found / "__init__.py" if found is not None and found.is_dir() else found

    def _foreign(self, module: str) -> None:
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top == _OWN_LIBRARY or not top:
            return
        if not self._distributions & {_key(name) for name in _distributions().get(top, [top])}:
            self.gaps.add(f"it uses {top}, which is not listed under `distributions`")

    def opacity(self, module: str, name: str) -> tuple[str, ...]:
        """Why what a name stands for can't be told from its source, if so."""
        names = self.names(module)
        bound = names.bound.get(name, []) if names is not None else []
        if not bound:
            return (f"{module}:{name} is made at run time",) if not names or not names.stars else ()
        last = bound[-1]
        if isinstance(last, Imported):
            return self._opacity_of_import(module, last)
        value = getattr(last, "value", None)
        if isinstance(value, ast.Lambda):
            return (f"{module}:{name} is a lambda",)
        if isinstance(value, ast.Name) and value.id != name:
            return self.opacity(module, value.id)
        if isinstance(value, ast.Call) and self._makes_functions(module, value.func):
            return (f"{module}:{name} is a closure",)
        return ()

    def _opacity_of_import(self, module: str, imported: Imported) -> tuple[str, ...]:
        origin = self._absolute(module, imported)
        if self._path(origin) is not None and imported.name:
            return self.opacity(origin, imported.name)
        found = locate(origin, None)
        if found is None or found.path is None:
            return (f"{origin}:{imported.name} has no Python source",)
        return ()

    def _makes_functions(self, module: str, called: ast.expr) -> bool:
        """Whether what is called is a function of the module that returns one that it defines."""
        names = self.names(module)
        if names is None or not isinstance(called, ast.Name):
            return False
        return any(
            isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
            and any(
                isinstance(part, (ast.FunctionDef, ast.Lambda)) for part in ast.walk(one) if part is not one
            )
            for one in names.bound.get(called.id, [])
        )


def _key(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    """Names of distributions by the packages that they bring."""
    return {package: list(names) for package, names in metadata.packages_distributions().items()}
