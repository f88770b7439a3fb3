"""The source files of scoring code: a function's module, and what it imports of its package or folder."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import machinery, metadata
from pathlib import Path
from typing import Final, Literal, TypeAlias

from mttp.otlp import regular_files
from mttp.rewards.folder import MAX_SOURCE
from mttp.rewards.modules import LIBRARY, Module, locate, version_of

__all__ = ["Code", "Coverage", "code_of", "of_target", "tree_of"]

Coverage: TypeAlias = Literal["full", "partial", "opaque"]
"""How much of the user's code was read: all, some, or none."""

_DYNAMIC: Final = {"compile", "eval", "exec", "__import__"}
_DYNAMIC_ATTRIBUTES: Final = {
    *("__subclasses__", "entry_points", "exec_module", "import_module", "load_module", "run_module"),
    *("run_path", "spec_from_file_location", "walk_packages"),
}
"""Names that reach code which no import statement names."""
_READING_METHODS: Final = {"open", "open_binary", "open_text", "read_binary", "read_bytes", "read_text"}
"""Methods that read a file, on any object."""
_READING_FUNCTIONS: Final = _READING_METHODS | {
    *("files", "from_pretrained", "fromfile", "full_load", "genfromtxt", "get_data", "load", "load_dataset"),
    *("load_all", "loadtxt", "memmap", "read_csv", "read_excel", "read_feather", "read_json", "read_parquet"),
    *("read_pickle", "read_table", "safe_load", "safe_load_all", "scan_csv", "scan_parquet"),
}
"""Functions that read a file if they are imported: `json.load`, `numpy.load`."""
_FILE_NAME = re.compile(r"[^\s*]*[^\s*.]\.[A-Za-z0-9]{1,8}")
_COMPILED: Final = (*machinery.EXTENSION_SUFFIXES, *machinery.BYTECODE_SUFFIXES)


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one component."""

    parts: tuple[tuple[str, str], ...] = ()
    """
    Sorted pairs: the path of a source file from its package's directory, and the SHA-256 of its text; and
    `module:name` of the function, with an empty text.
    """
    coverage: Coverage = "full"
    """How much of the code is in `parts`."""
    gaps: tuple[str, ...] = ()
    """Messages about code that is not in `parts`."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What the text of a module shows."""

    sha256: str
    """The digest of the text, with the line endings of Unix."""
    is_python: bool = False
    """Whether it can be parsed."""
    imports: tuple[ast.Import | ast.ImportFrom, ...] = ()
    """The import statements."""
    dynamic: frozenset[str] = frozenset()
    """The names by which it reaches code that no import statement names."""
    reads: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    """For each call that reads a file: the texts in the call, and those in the statement around it."""


def of_target(
    use: str, folder: Path | None, distributions: Iterable[str] = (), depends: Iterable[str] = ()
) -> Code:
    """Return the code of a `use` target without importing it."""
    name, _, attribute = use.partition(":")
    module = locate(name, folder)
    if module is None or module.path is None:
        return Code(coverage="opaque", gaps=(f"{use} has no Python source",))
    return code_of(module, attribute, distributions, depends)


def code_of(module: Module, name: str | None, distributions: Iterable[str], depends: Iterable[str]) -> Code:
    """Return the code of a module; opaque if it defines `name` without Python source."""
    if module.name.partition(".")[0] == LIBRARY:
        gap = f"{module.name} belongs to mttp, of which the digest has the version and no code"
        return Code(((LIBRARY, str(version_of(LIBRARY))),), "partial", (gap,))
    tree = tree_of(module.path)
    if tree is None:
        return Code(coverage="opaque", gaps=(f"{module.path} can't be parsed as Python",))
    try:
        files = _Files(module, distributions, depends)
        opacity = _opacity(module, tree, name.partition(".")[0]) if name is not None else ()
    except RecursionError:
        return Code(coverage="opaque", gaps=(f"the code of {module.name} is nested too deeply",))
    coverage: Coverage = "opaque" if opacity else "partial" if files.gaps else "full"
    named = {} if name is None else {f"{module.name}:{name}": ""}
    return Code(tuple(sorted((files.parts | named).items())), coverage, (*opacity, *sorted(files.gaps)))


class _Files:
    """The source files of a module and of what it imports, directly and indirectly."""

    def __init__(self, module: Module, distributions: Iterable[str], depends: Iterable[str]) -> None:
        self.parts: dict[str, str] = {}
        self.gaps: set[str] = set()
        self._module = module
        self._distributions = frozenset(map(_key, distributions))
        self._depends = frozenset(Path(file).name for file in depends)
        self._waiting = [*_with_packages(module.name)]
        passed: set[str] = set()
        while self._waiting:
            name = self._waiting.pop()
            if name not in passed and (path := module.find(name)) is not None:
                self._add(name, path)
            passed.add(name)

    def _add(self, name: str, path: Path) -> None:
        text = _text_of(path)
        if text is None:
            self.gaps.add(f"{name} can't be read")
            return
        source = _source(text)
        self.parts[f"{name.replace('.', '/')}{'/__init__' * _is_package(path)}.py"] = source.sha256
        if not source.is_python:
            self.gaps.add(f"{name} can't be parsed as Python")
        self.gaps |= {f"{name} uses {used}, which can reach any code" for used in source.dynamic}
        for texts in source.reads:
            self._note_read(name, *texts)
        for statement in source.imports:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    self._import(alias.name)
            else:
                self._import_from(_origin(name, path, statement), [alias.name for alias in statement.names])

    def _import_from(self, origin: str, names: Iterable[str]) -> None:
        if origin:
            self._import(origin)
        path = self._module.find(origin)
        if path is not None and not _is_package(path):
            return
        for name in names:
            if name == "*":
                files = path.parent.glob("*.py") if path is not None else ()
                self._waiting += [f"{origin}.{file.stem}" for file in files if not _is_package(file)]
            elif self._module.owns(part := f"{origin}.{name}".strip(".")):
                self._import(part)

    def _import(self, name: str) -> None:
        if self._module.owns(name):
            self._waiting += _with_packages(name)
            if self._is_compiled(name):
                self.gaps.add(f"{name} has no Python source")
        elif not self._is_listed(top := name.partition(".")[0]):
            self.gaps.add(f"it uses {top}, which is not listed under `distributions`")

    def _is_listed(self, package: str) -> bool:
        if package in sys.stdlib_module_names or package == LIBRARY:
            return True
        return any(_key(name) in self._distributions for name in _distributions().get(package, [package]))

    def _is_compiled(self, name: str) -> bool:
        if self._module.root is None or self._module.find(name) is not None:
            return False
        place = self._module.root.joinpath(*name.split("."))
        return any(place.with_name(place.name + suffix).exists() for suffix in _COMPILED)

    def _note_read(self, module: str, call: frozenset[str], statement: frozenset[str]) -> None:
        """Add a gap for a file that is read and is not under `depends`."""
        names = self._file_names(call) or self._file_names(statement)
        if not any(Path(name).name in self._depends for name in names):
            files = ", ".join(sorted(names)) or "a file with a computed name"
            self.gaps.add(f"{module} reads {files}, which is not listed under `depends`")

    def _file_names(self, texts: Iterable[str]) -> list[str]:
        return [text for text in texts if _FILE_NAME.fullmatch(text) or Path(text).name in self._depends]


def _opacity(module: Module, tree: ast.Module, name: str) -> tuple[str, ...]:
    """Return a message if Python source does not define a name of a module; empty if it does."""
    bound = [*_bindings(tree.body, name)]
    if not bound:
        has_star = any(_bindings(tree.body, "*"))
        return () if has_star else (f"{module.name}:{name} is defined at run time",)
    statement, imported = bound[-1]
    if not isinstance(statement, ast.ImportFrom) or module.path is None:
        return ()
    origin = _origin(module.name, module.path, statement)
    if module.find(origin) is not None or module.find(f"{origin}.{imported}".strip(".")) is not None:
        return ()
    located = locate(origin, None)
    is_source = located is not None and located.path is not None
    return () if is_source else (f"{origin}:{imported} has no Python source",)


def tree_of(path: Path | None) -> ast.Module | None:
    """Return the syntax tree of a file, or None if it can't be read or parsed."""
    text = _text_of(path) if path is not None else None
    return _parsed(text) if text is not None else None


def _text_of(path: Path) -> bytes | None:
    """Return the text of a file with the line endings of Unix, or None if it can't be read."""
    try:
        return regular_files.read(path, MAX_SOURCE).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    except OSError:
        return None


@lru_cache(maxsize=32)  # trees take much more memory than what is kept of them in a `_Source`
def _parsed(text: bytes) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # MemoryError: nested too deeply
        return None


@lru_cache(maxsize=2048)
def _source(text: bytes) -> _Source:
    sha256, tree = hashlib.sha256(text).hexdigest(), _parsed(text)
    if tree is None:
        return _Source(sha256)
    body = [*_imported_statements(tree.body)]
    nodes = [node for statement in body for node in ast.walk(statement)]
    imports = tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    aliases = [alias for node in imports for alias in node.names]
    imported = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    attributes |= {alias.name for alias in aliases}
    dynamic = names & (_DYNAMIC - imported) | attributes & _DYNAMIC_ATTRIBUTES
    dynamic |= {"sys.modules" for node in nodes if _is_modules(node)}
    return _Source(sha256, True, imports, frozenset(dynamic), tuple(_reads(body, imported)))


def _is_modules(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "modules" and _last(node.value) == "sys"


def _imported_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported."""
    for statement in body:
        tested = ast.unparse(statement.test) if isinstance(statement, ast.If) else ""
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in tested:
            yield from _imported_statements(statement.orelse)
        elif not tested.startswith("__name__ =="):
            yield statement


def _reads(body: Iterable[ast.stmt], imported: set[str]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Yield the texts of each call that reads a file, and those of the statement around it."""
    constants = {
        target.id: _texts(statement, {})
        for statement in body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _is_reading(node.func, imported):
                yield _texts(node, constants), _texts(statement, constants)


def _is_reading(function: ast.expr, imported: set[str]) -> bool:
    root = function
    while isinstance(root, ast.Attribute):
        root = root.value
    if _last(root) in imported:
        return _last(function) in _READING_FUNCTIONS
    return _last(function) in (_READING_METHODS if isinstance(function, ast.Attribute) else {"open"})


def _texts(node: ast.AST, constants: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the texts in a piece of code and in the constants that it names."""
    parts = [*ast.walk(node)]
    literals = [part.value for part in parts if isinstance(part, ast.Constant)]
    named = [constants.get(part.id, frozenset()) for part in parts if isinstance(part, ast.Name)]
    return frozenset(text for text in literals if isinstance(text, str)).union(*named)


def _last(node: ast.AST) -> str | None:
    """Return the last name of an expression such as `numpy.load`."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def _bindings(nodes: Iterable[ast.AST], name: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes outside of functions and classes that bind a name, with the name in its module."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name == name:
                yield node, name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if name == (alias.asname or alias.name.partition(".")[0]):
                    yield node, alias.name
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store) and node.id == name:
                yield node, name
        else:
            yield from _bindings(ast.iter_child_nodes(node), name)


def _origin(module: str, path: Path, statement: ast.ImportFrom) -> str:
    """Return the absolute name of the module from which a module imports."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    parts = parts[: max(0, len(parts) - statement.level + _is_package(path))]
    return ".".join([*parts, statement.module] if statement.module else parts)


def _with_packages(name: str) -> Iterator[str]:
    """Yield the packages of a module, which run before it, and the module."""
    parts = name.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def _is_package(path: Path) -> bool:
    return path.name == "__init__.py"


def _key(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    """Return the names of distributions by the packages that they contain."""
    return {package: list(names) for package, names in metadata.packages_distributions().items()}
