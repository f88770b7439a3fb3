"""Side effects that syntax shows: files that code reads, objects that it mutates, registrations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from mttp.rewards.bindings import Chain, chain_of, inside

__all__ = ["changed_globals", "changed_names", "file_reads", "is_file_name", "registered_with", "texts"]

_FILE = re.compile(r"[^\s*]*[^\s*.]\.[A-Za-z0-9]{1,8}")
_READING_METHODS: Final = {"open", "open_binary", "open_text", "read_binary", "read_bytes", "read_text"}
"""Methods that read a file, on any object."""
_READING_FUNCTIONS: Final = _READING_METHODS | {
    *("files", "from_pretrained", "fromfile", "full_load", "genfromtxt", "get_data", "load", "load_dataset"),
    *("load_all", "loadtxt", "memmap", "read_csv", "read_excel", "read_feather", "read_json", "read_parquet"),
    *("read_pickle", "read_table", "safe_load", "safe_load_all", "scan_csv", "scan_parquet"),
}
"""Functions that read a file if they are imported: `json.load`, `numpy.load`."""
_CHANGING_METHODS: Final = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "remove", "setdefault", "update"),
}


def is_file_name(text: str) -> bool:
    """Return whether a text looks like a file name."""
    return _FILE.fullmatch(text) is not None


def texts(node: ast.AST) -> set[str]:
    """Return the string literals in a piece of code."""
    constants = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return {value for value in constants if isinstance(value, str)}


def file_reads(statement: ast.stmt, imported: set[str]) -> Iterator[ast.Call]:
    """Yield the calls that read a file; `imported` are the imported names."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _reads(node.func, imported):
            yield node


def _reads(function: ast.expr, imported: set[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "open" or (function.id in imported and function.id in _READING_FUNCTIONS)
    if not isinstance(function, ast.Attribute):
        return False
    chain = chain_of(function)
    is_imported = bool(chain) and chain[0] in imported
    return function.attr in (_READING_FUNCTIONS if is_imported else _READING_METHODS)


def changed_globals(statement: ast.stmt) -> set[str]:
    """Return the module's names whose objects a function or a class's methods mutate when called."""
    found: set[str] = set()
    for function in ast.walk(statement):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            stated = [part for part in ast.walk(function) if isinstance(part, ast.Global)]
            shared = {name for part in stated for name in part.names}
            local = _bound_in(function) - shared
            for node in ast.walk(function):
                found |= {chain[0] for chain in _changes(node)} - local
            found |= shared & _bound_in(function)
    return found


def _bound_in(function: ast.AST) -> set[str]:
    """Return the arguments of a function and the names that it binds."""
    return {part.arg for part in ast.walk(function) if isinstance(part, ast.arg)} | {
        part.id
        for part in ast.walk(function)
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del))
    }


def changed_names(statement: ast.AST) -> Iterator[Chain]:
    """Yield the names with attributes that a module's statement mutates."""
    yield from _changes(statement)
    for child in inside(statement):
        yield from changed_names(child)


def _changes(node: ast.AST) -> Iterator[Chain]:
    """Yield `name` of `name.attribute = ...`, `name[...] = ...`, `name.update(...)`, `setattr(name, ...)`."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield from [chain for chain in [chain_of(node)] if chain]
    if not isinstance(node, ast.Call):
        return
    called = chain_of(node.func)
    if len(called) > 1 and called[-1] in _CHANGING_METHODS:
        yield called[:-1]
    if called in (("setattr",), ("delattr",)) and len(node.args) > 1:
        target, name = chain_of(node.args[0]), node.args[1]
        attribute = (name.value,) if isinstance(name, ast.Constant) and isinstance(name.value, str) else ()
        if target:
            yield (*target, *attribute)


def registered_with(statement: ast.AST) -> Iterator[tuple[str, Chain]]:
    """Yield a module's functions and classes with their decorators and bases, and its bare calls."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        parts = [*statement.decorator_list]
        if isinstance(statement, ast.ClassDef):
            parts += [*statement.bases, *(keyword.value for keyword in statement.keywords)]
        for part in parts:
            if chain := chain_of(part.func if isinstance(part, ast.Call) else part):
                yield statement.name, chain
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Call) and (chain := chain_of(value.func)):
        yield "", chain
    for child in inside(statement):
        yield from registered_with(child)
