"""Modules in a spec's directory, imported under a private package name for each directory."""

from __future__ import annotations

import builtins
import hashlib
import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from mttp.otlp import regular_files

MAX_SOURCE: Final = 4 << 20
"""The maximum size in bytes of a module that is imported or read for a digest."""

_PREFIX = "_mttp_spec_"
_OURS = "mttp"
_lock = threading.RLock()
_folders: dict[str, Folder] = {}


class Folder:
    """
    A directory of modules as a package with a private name.

    Its modules' imports are looked up in the directory first, then as usual; `sys.path` is not changed.
    """

    def __init__(self, path: Path, package: str) -> None:
        self.path = path
        """The resolved directory."""
        self.package = package
        """The package name of its modules in `sys.modules`."""
        self.sources: dict[str, bytes] = {}
        """The source of each imported file."""
        self._known: dict[str, bool] = {}

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Return the folder at `path`, a new one if an imported file has changed."""
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        resolved = path.resolve()
        with _lock:
            digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:12]
            count = 0
            while (package := f"{_PREFIX}{digest}_{count}") in _folders:
                if _folders[package]._is_current():
                    return _folders[package]
                count += 1
            _folders[package] = folder = cls(resolved, package)
            module = ModuleType(package)
            module.__path__ = [str(resolved)]
            sys.modules[package] = module
            return folder

    def has(self, module: str) -> bool:
        """Return whether the directory has the module; links that lead out of it do not count."""
        name = module.partition(".")[0]
        if name not in self._known:
            self._known[name] = name != _OURS and find(self.path, name) is not None
        return self._known[name]

    def load(self, module: str) -> ModuleType:
        """Import and return a module; raises what importing it raises."""
        return importlib.import_module(f"{self.package}.{module}")

    def _is_current(self) -> bool:
        return all(_bytes(file) == source for file, source in self.sources.items())

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """Implement `import` for the modules of the directory."""
        if level or not self.has(name):
            return builtins.__import__(name, globals, locals, fromlist, level)
        if fromlist:
            return builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist, 0)
        importlib.import_module(f"{self.package}.{name}")
        return sys.modules[f"{self.package}.{name.partition('.')[0]}"]


class _Loader(SourceFileLoader):
    """Loads a module of a folder without `.pyc` files, which miss changes within a second."""

    def __init__(self, fullname: str, path: str, folder: Folder) -> None:
        super().__init__(fullname, path)
        self._folder = folder

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = regular_files.read(Path(path), MAX_SOURCE)
        self._folder.sources[path] = source
        code: CodeType = self.source_to_code(source, path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        names = {**vars(builtins), "__import__": self._folder._import}
        module.__dict__["__builtins__"] = names  # import statements look up `__import__` here
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules of a folder's package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder = _folders.get(fullname.partition(".")[0])
        if folder is None or path is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return spec
        if not is_within(Path(spec.origin), folder.path):  # returning None would let Python's finder load it
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        if not isinstance(spec.loader, SourceFileLoader):
            return spec
        spec.loader = _Loader(fullname, spec.origin, folder)
        spec.cached = None
        return spec


_finder = _Finder()


def find(folder: Path, module: str) -> Path | None:
    """Return the file of a module in a folder, or a namespace package's directory; None for outside links."""
    place = folder.joinpath(*module.split("."))
    candidates = [place / "__init__.py", place.with_name(f"{place.name}.py")]
    location = next((file for file in candidates if file.is_file()), None)
    if location is None and place.is_dir() and any(place.glob("*.py")):
        location = place
    return location if location is not None and is_within(location, folder) else None


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a file is in a folder after links are resolved."""
    return path.resolve().is_relative_to(folder.resolve())


def _bytes(path: str) -> bytes | None:
    try:
        return regular_files.read(Path(path), MAX_SOURCE)
    except OSError:
        return None
