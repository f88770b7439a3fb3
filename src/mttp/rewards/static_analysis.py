"""Static analysis of scoring code: the definitions that a function reaches in its own package or folder."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final, Literal, TypeAlias

from mttp.otlp import regular_files
from mttp.rewards.bindings import Bound, Chain, Imported, Names, names_in, names_of
from mttp.rewards.folder import MAX_SOURCE, find
from mttp.rewards.modules import Module, is_installed, locate
from mttp.rewards.runtime_changes import changes
from mttp.rewards.side_effects import file_reads, is_file_name, texts
from mttp.rewards.syntax import normal

__all__ = ["Code", "Coverage", "Reach", "code_of", "of_target", "tree_of"]

Coverage: TypeAlias = Literal["full", "partial", "opaque"]
"""How much of the user's code was read: all, some, or none."""

_DYNAMIC: Final = {"eval", "exec", "globals", "locals", "__import__", "compile"}
_DYNAMIC_ATTRIBUTES: Final = {
    *("entry_points", "exec_module", "import_module", "iter_modules", "load_module", "modules", "reload"),
    *("run_module", "run_path", "spec_from_file_location", "walk_packages"),
}
"""Names in `_IMPORTERS` that import modules by a computed name."""
_IMPORTERS: Final = {"imp", "importlib", "importlib_metadata", "pkgutil", "runpy", "sys"}
_OWN_LIBRARY: Final = "mttp"


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one component."""

    parts: tuple[tuple[str, str], ...] = ()
    """The definitions that it reaches, as sorted (module:name, normal form) pairs."""
    coverage: Coverage = "full"
    """How much of the code is in `parts`."""
    gaps: tuple[str, ...] = ()
    """Messages about code that is not in `parts`."""


def of_target(
    use: str, folder: Path | None, distributions: Iterable[str] = (), depends: Iterable[str] = ()
) -> Code:
    """Return the code of a `use` target without importing it."""
    name, _, attribute = use.partition(":")
    module = locate(name, folder)
    if module is None or module.path is None:
        return Code(coverage="opaque", gaps=(f"{use} has no Python source",))
    return code_of(module, attribute.partition(".")[0], distributions, depends)


def code_of(module: Module, name: str, distributions: Iterable[str], depends: Iterable[str]) -> Code:
    """Return the code of a name of a module."""
    reach = Reach(module, distributions, depends)
    if reach.names(module.name) is None:
        return Code(coverage="opaque", gaps=(f"{module.path} can't be parsed as Python",))
    try:
        reach.follow(module.name, name)
    except RecursionError:
        return Code(coverage="opaque", gaps=(f"the code of {module.name}:{name} is nested too deeply",))
    reach.gaps |= set(changes(reach))
    opacity = reach.opacity(module.name, name)
    coverage: Coverage = "opaque" if opacity else "partial" if reach.gaps else "full"
    return Code(tuple(sorted(reach.parts.items())), coverage, (*opacity, *sorted(reach.gaps)))


@lru_cache(maxsize=256)
def _parsed(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # MemoryError: nested too deeply
        return None


def tree_of(path: Path | None) -> ast.Module | None:
    """Return the syntax tree of a file, or None if it can't be read or parsed."""
    try:
        return _parsed(regular_files.read(path, MAX_SOURCE)) if path is not None else None
    except OSError:
        return None


class Reach:
    """Collects the definitions that a function reaches in its own package or folder."""

    def __init__(self, module: Module, distributions: Iterable[str], depends: Iterable[str]) -> None:
        self.parts: dict[str, str] = {}
        self.gaps: set[str] = set()
        self.seen: set[tuple[str, str]] = set()
        self.folder = module.root if module.beside else None
        self.is_installed = is_installed(module)
        self._module = module
        self._distributions = frozenset(_key(one) for one in distributions)
        self._files = frozenset(Path(one).name for one in depends)
        self._names: dict[str, Names | None] = {}

    def tree(self, module: str) -> ast.Module | None:
        """Return the syntax tree of one of its own modules, or None."""
        return tree_of(self._path(module))

    def names(self, module: str) -> Names | None:
        """Return the names of one of its own modules, or None."""
        if module not in self._names:
            tree = self.tree(module)
            self._names[module] = names_of(tree) if tree is not None else None
        return self._names[module]

    def origin(self, module: str, chain: Chain) -> tuple[str, Chain] | None:
        """Return the own module that defines a name, and the name's remaining attributes; else None."""
        names = self.names(module)
        bound = names.bound.get(chain[0], []) if names is not None else []
        imported = next((one for one in bound if isinstance(one, Imported)), None)
        if imported is None:
            return (module, chain) if bound else None
        origin = self.absolute(module, imported)
        chain = (imported.name, *chain[1:]) if imported.name else chain[1:]
        while chain and self._path(f"{origin}.{chain[0]}".strip(".")) is not None:
            origin, chain = f"{origin}.{chain[0]}".strip("."), chain[1:]
        return (origin, chain) if self._path(origin) is not None else None

    def follow(self, module: str, name: str) -> None:
        """Collect a name of one of its own modules, and everything that the name uses."""
        names = self.names(module)
        if names is None or (module, name) in self.seen:
            return
        self.seen.add((module, name))
        if (module, "") not in self.seen:
            self.seen.add((module, ""))
            for statement in names.effects:
                self.add(f"{module}:", statement, module)
        if name in names.bound:
            for bound in names.bound[name]:
                self._follow_bound(module, name, bound)
        elif self._path(f"{module}.{name}") is not None:
            self._whole(f"{module}.{name}")
        elif "__getattr__" in names.bound:
            self.gaps.add(f"{module}.{name} comes from the __getattr__ of {module}")
            self.follow(module, "__getattr__")
        else:
            self._follow_stars(module, name, names)

    def _follow_bound(self, module: str, name: str, bound: Bound) -> None:
        if isinstance(bound, Imported):
            self._note(module, name, bound)
            self._follow_import(module, bound, ())
        else:
            self.add(f"{module}:{name}", bound, module)

    def add(self, key: str, statement: ast.stmt, module: str) -> None:
        """Collect a statement of a module under a key, and everything that it uses."""
        self._append(key, normal(statement))
        chains, imported = names_in(statement)
        self._note_files(module, statement, imported)
        for chain in sorted(chains):
            self.use(module, chain, imported)

    def _note_files(self, module: str, statement: ast.stmt, imported: Mapping[str, Imported]) -> None:
        """Add a gap for each file that a statement reads and that is not under `depends`."""
        names = self.names(module)
        bound = names.bound if names is not None else {}
        foreign = {name for name, all_ in bound.items() if any(isinstance(one, Imported) for one in all_)}
        for call in file_reads(statement, foreign | imported.keys()):
            known = self._file_names(module, call) or self._file_names(module, statement)
            if not any(Path(text).name in self._files for text in known):
                files = ", ".join(sorted(filter(is_file_name, known))) or "a file with a computed name"
                self.gaps.add(f"{module} reads {files}, which is not listed under `depends`")

    def _file_names(self, module: str, node: ast.AST) -> set[str]:
        """Return the file names in a piece of code and in the constants that it uses."""
        names = self.names(module)
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        constants = [one for name in used for one in (names.bound.get(name, ()) if names is not None else ())]
        literals = texts(node).union(*(texts(one) for one in constants if isinstance(one, ast.Assign)))
        return {text for text in literals if is_file_name(text) or Path(text).name in self._files}

    def _append(self, key: str, text: str) -> None:
        """Add text to the part under a key."""
        self.parts[key] = f"{self.parts[key]}\n{text}" if key in self.parts else text

    def _note(self, module: str, name: str, origin: Imported) -> None:
        """Add the origin of an imported name, so that another origin changes the digest."""
        if (key := (module, f"{name} {origin}")) not in self.seen:
            self.seen.add(key)
            self._append(f"{module}:{name}", str(origin))

    def use(self, module: str, chain: Chain, imported: Mapping[str, Imported]) -> None:
        """Collect a name that code of a module uses, and everything that the name uses."""
        names = self.names(module)
        if "__subclasses__" in chain:
            self.gaps.add(f"{module} uses the subclasses of {chain[0]}, which any module may define")
        if chain[0] in imported:
            self._follow_import(module, imported[chain[0]], chain[1:])
        elif names is not None and chain[0] in names.bound:
            self._use_bound(module, chain, names.bound[chain[0]])
        elif hasattr(builtins, chain[0]):
            if chain[0] in _DYNAMIC:
                self.gaps.add(f"{module} calls {chain[0]}, which can run any code")
        elif names is not None:
            self._follow_stars(module, chain[0], names)

    def _use_bound(self, module: str, chain: Chain, bound: Iterable[Bound]) -> None:
        for one in bound:
            if isinstance(one, Imported):
                self._note(module, chain[0], one)
                self._follow_import(module, one, chain[1:])
        self._follow_statements(module, chain[0])

    def _follow_statements(self, module: str, name: str) -> None:
        """Collect the statements for a name, except imports."""
        names = self.names(module)
        if names is not None and any(not isinstance(one, Imported) for one in names.bound[name]):
            self.follow(module, name)

    def _follow_stars(self, module: str, name: str, names: Names) -> None:
        for star in names.stars:
            self._note(module, "*", star)
            origin = self.absolute(module, star)
            found = self.names(origin) if self._path(origin) is not None else None
            if found is not None and (name in found.bound or found.stars):
                self.follow(origin, name)
            elif found is None:
                self._foreign(origin)

    def _follow_import(self, module: str, imported: Imported, taken: Chain) -> None:
        origin = self.absolute(module, imported)
        chain = (imported.name, *taken) if imported.name else taken
        while chain and self._path(f"{origin}.{chain[0]}".strip(".")) is not None:
            origin, chain = f"{origin}.{chain[0]}".strip("."), chain[1:]
        if self._path(origin) is None:
            self._foreign(origin or (chain[0] if chain else ""))
            is_importer = origin.partition(".")[0] in _IMPORTERS
            for name in {*chain} & _DYNAMIC_ATTRIBUTES if is_importer else ():
                self.gaps.add(f"{module} calls {name}, which can run any code")
        elif chain:
            self.follow(origin, chain[0])
        else:
            self._whole(origin)

    def _whole(self, module: str) -> None:
        """Collect all names of a module, for a module that is used as an object."""
        names = self.names(module)
        for name in names.bound if names is not None else ():
            self.follow(module, name)

    def absolute(self, module: str, imported: Imported) -> str:
        """Return the absolute name of a module that another one imports."""
        if not imported.level:
            return imported.module
        path = self._path(module)
        package = (
            module.split(".") if path is not None and path.name == "__init__.py" else module.split(".")[:-1]
        )
        package = package[: len(package) - imported.level + 1]
        return ".".join([*package, *([imported.module] if imported.module else [])])

    def _path(self, module: str) -> Path | None:
        """Return the source file of one of its own modules, or None for other modules."""
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
        """Return messages about why a name's code can't be read from source; empty if it can."""
        names = self.names(module)
        bound = names.bound.get(name, []) if names is not None else []
        if not bound:
            return (f"{module}:{name} is defined at run time",) if not names or not names.stars else ()
        last = bound[-1]
        if isinstance(last, Imported):
            return self._opacity_of_import(module, last)
        value = getattr(last, "value", None)
        if isinstance(value, ast.Name) and value.id != name:
            return self.opacity(module, value.id)
        return ()

    def _opacity_of_import(self, module: str, imported: Imported) -> tuple[str, ...]:
        origin = self.absolute(module, imported)
        if self._path(origin) is not None and imported.name:
            return self.opacity(origin, imported.name)
        found = locate(origin, None)
        if found is None or found.path is None:
            return (f"{origin}:{imported.name} has no Python source",)
        return ()


def _key(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    """Return the names of distributions by the packages that they contain."""
    return {package: list(names) for package, names in metadata.packages_distributions().items()}
