"""The source files of scoring code: a function's module, and what it imports of its package or folder."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import machinery, metadata
from pathlib import Path
from typing import Final, Literal, TypeAlias

from mttp.otlp import regular_files
from mttp.rewards.folder import MAX_SOURCE
from mttp.rewards.modules import LIBRARY, Module, locate, version_of

METHOD: Final = "files:1"
"""The method of this version, before the 64 hex digits of a digest; digests of older versions have none."""
Coverage: TypeAlias = Literal["full", "partial", "opaque"]
"""How much of the user's code was read: all, some, or none."""

_DYNAMIC: Final = {
    *("__import__", "__subclasses__", "compile", "entry_points", "eval", "exec", "exec_module"),
    *("import_module", "load_module", "run_module", "run_path", "spec_from_file_location", "walk_packages"),
}
"""Names that reach code which no import statement names; `compile` only if it is not a method."""
_READING_METHODS: Final = {"open", "open_binary", "open_text", "read_binary", "read_bytes", "read_text"}
"""Names that read a file, also as methods of any object."""
_READING_FUNCTIONS: Final = _READING_METHODS | {
    *("files", "from_pretrained", "fromfile", "full_load", "genfromtxt", "get_data", "load", "load_dataset"),
    *("load_all", "loadtxt", "memmap", "read_csv", "read_excel", "read_feather", "read_json", "read_parquet"),
    *("read_pickle", "read_table", "safe_load", "safe_load_all", "scan_csv", "scan_parquet"),
}
"""Names that read a file if they are imported: `json.load`, `numpy.load`."""
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
    reads: frozenset[str] = frozenset()
    """The names by which it reads files."""
    file_names: frozenset[str] = frozenset()
    """The last parts of its texts, if they are paths."""


def is_same_method(digest: str, other: str) -> bool:
    """Return whether two digests are made by one method, so that different digests mean different code."""
    return digest.rpartition(":")[0] == other.rpartition(":")[0]


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
    """Return the code of a module, with the `name` of its function; opaque if the module can't be parsed."""
    if module.name.partition(".")[0] == LIBRARY:
        gap = f"{module.name} belongs to mttp, of which the digest has the version and no code"
        return Code(((LIBRARY, str(version_of(LIBRARY))),), "partial", (gap,))
    text = text_of(module.path) if module.path is not None else None
    if text is None or not _source(text).is_python:
        return Code(coverage="opaque", gaps=(f"{module.path} can't be parsed as Python",))
    files = _Files(module, distributions, depends)
    named = {} if name is None else {f"{module.name}:{name}": ""}
    parts = tuple(sorted((files.parts | named).items()))
    return Code(parts, "partial" if files.gaps else "full", tuple(sorted(files.gaps)))


class _Files:
    """The source files of a module and of what it imports, directly and indirectly."""

    def __init__(self, module: Module, distributions: Iterable[str], depends: Iterable[str]) -> None:
        self.parts: dict[str, str] = {}
        self.gaps: set[str] = set()
        self._module = module
        self._distributions = frozenset(map(_key, distributions))
        self._depends = frozenset(Path(file).name for file in depends)
        self._waiting: list[str] = []
        passed: set[str] = set()
        self._add_waiting(module.name)
        while self._waiting:
            name = self._waiting.pop()
            if name not in passed and (path := module.find(name)) is not None:
                self._read(name, path)
            passed.add(name)

    def _add_waiting(self, name: str) -> None:
        """Add a module and its packages, which run before it."""
        parts = name.split(".")
        self._waiting += [".".join(parts[: end + 1]) for end in range(len(parts))]

    def _read(self, name: str, path: Path) -> None:
        text = text_of(path)
        if text is None:
            self.gaps.add(f"{name} can't be read")
            return
        source, is_package = _source(text), path.name == "__init__.py"
        self.parts[f"{name.replace('.', '/')}{'/__init__' * is_package}.py"] = source.sha256
        if not source.is_python:
            self.gaps.add(f"{name} can't be parsed as Python")
        self.gaps |= {f"{name} uses {used}, which can reach any code" for used in source.dynamic}
        if source.reads and not source.file_names & self._depends:
            used = ", ".join(sorted(source.reads))
            self.gaps.add(f"{name} reads files by {used}, and names none that is listed under `depends`")
        for statement in source.imports:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    self._import(alias.name)
                continue
            origin = statement.module or ""
            if statement.level:
                parents = name.split(".")
                parents = parents[: max(0, len(parents) - statement.level + is_package)]
                origin = ".".join([*parents, origin] if origin else parents)
            self._import_from(origin, [alias.name for alias in statement.names])

    def _import_from(self, origin: str, names: Iterable[str]) -> None:
        if origin:
            self._import(origin)
        path = self._module.find(origin)
        if path is not None and path.name != "__init__.py":
            return
        for name in names:
            if name == "*":
                files = path.parent.glob("*.py") if path is not None else ()
                self._waiting += [f"{origin}.{file.stem}" for file in files if file != path]
            elif self._module.owns(part := f"{origin}.{name}".strip(".")):
                self._import(part)

    def _import(self, name: str) -> None:
        package = name.partition(".")[0]
        if self._module.owns(name):
            self._add_waiting(name)
            if self._is_compiled(name):
                self.gaps.add(f"{name} has no Python source")
        elif package not in sys.stdlib_module_names and package != LIBRARY:
            distributions = _distributions().get(package, [package])
            if self._distributions.isdisjoint(map(_key, distributions)):
                self.gaps.add(f"it uses {package}, which is not listed under `distributions`")

    def _is_compiled(self, name: str) -> bool:
        if self._module.root is None or self._module.find(name) is not None:
            return False
        place = self._module.root.joinpath(*name.split("."))
        return any(place.with_name(place.name + suffix).exists() for suffix in _COMPILED)


def text_of(path: Path) -> bytes | None:
    """Return the text of a file with the line endings of Unix, or None if it can't be read."""
    try:
        return regular_files.read(path, MAX_SOURCE).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    except OSError:
        return None


@lru_cache(maxsize=2048)
def _source(text: bytes) -> _Source:
    sha256 = hashlib.sha256(text).hexdigest()
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # MemoryError: nested too deeply
        return _Source(sha256)
    imports = tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    aliases = [alias for statement in imports for alias in statement.names]
    imported = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - imported
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    reached = {node.attr for node in attributes} | {alias.name for alias in aliases}
    dynamic = _DYNAMIC & names | _DYNAMIC & reached - {"compile"}
    dynamic |= {"sys.modules" for node in attributes if _ends(node) == ("sys", "modules")}
    reads = {
        last
        for first, last in (_ends(node.func) for node in nodes if isinstance(node, ast.Call))
        if last in (_READING_FUNCTIONS if first in imported else _READING_METHODS)
    }
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    file_names = frozenset(text.replace("\\", "/").rpartition("/")[2] for text in texts)
    return _Source(sha256, True, imports, frozenset(dynamic), frozenset(reads), file_names)


def _ends(node: ast.expr) -> tuple[str, str]:
    """Return the first and the last name of an expression such as `numpy.load`, or empty texts."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    first = root.id if isinstance(root, ast.Name) else ""
    return first, node.attr if isinstance(node, ast.Attribute) else first


def _key(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    """Return the names of distributions by the packages that they contain."""
    return {package: list(names) for package, names in metadata.packages_distributions().items()}
