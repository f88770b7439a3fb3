"""The names that a module binds, and the names that a piece of its code uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mttp.rewards.syntax import is_text

__all__ = [
    "Bound",
    "Chain",
    "Imported",
    "Names",
    "chain_of",
    "imported_modules",
    "inside",
    "names_in",
    "names_of",
    "statements",
]

Chain: TypeAlias = tuple[str, ...]
"""A name with its attributes: `helpers.scale` is `("helpers", "scale")`."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The origin of an imported name."""

    module: str
    """The module, without the dots of a relative import."""
    level: int = 0
    """The number of dots."""
    name: str | None = None
    """The name imported from the module; None if the module itself is imported."""

    def __str__(self) -> str:
        return f"{'.' * self.level}{self.module}:{self.name or ''}"


Bound: TypeAlias = "ast.stmt | Imported"
"""A statement that binds or changes a name, or the origin of an import."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a module."""

    bound: dict[str, list[Bound]] = field(default_factory=dict)
    """The bindings of each name, in source order."""
    stars: list[Imported] = field(default_factory=list)
    """Modules imported with `*`."""
    effects: list[ast.stmt] = field(default_factory=list)
    """Statements that bind no name, such as a call that registers something."""

    def add(self, name: str, bound: Bound) -> None:
        """Add a binding of a name."""
        self.bound.setdefault(name, []).append(bound)


def names_of(tree: ast.Module) -> Names:
    """Return the names of a module, without its `__main__` and `TYPE_CHECKING` blocks."""
    names = Names()
    for statement in statements(tree.body):
        _bind(statement, names)
    return names


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported."""
    for statement in body:
        tested = ast.unparse(statement.test) if isinstance(statement, ast.If) else ""
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in tested:
            yield from statements(statement.orelse)
        elif not is_text(statement) and not tested.startswith("__name__ =="):
            yield statement


def _bind(statement: ast.stmt, names: Names) -> None:
    for imported in _imports(statement):
        for name, origin in _origins(imported):
            if name == "*":
                names.stars.append(origin)
            else:
                names.add(name, origin)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return
    changed = _stored(statement) | {name for name in _changed(statement) if _is_made_here(name, names)}
    for name in sorted(changed):
        names.add(name, statement)
    if not changed:
        names.effects.append(statement)


def _is_made_here(name: str, names: Names) -> bool:
    return any(not isinstance(bound, Imported) for bound in names.bound.get(name, []))


def _imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that run with a piece of code."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node
    for child in inside(node):
        yield from _imports(child)


def imported_modules(tree: ast.Module) -> Iterator[Imported]:
    """Yield the imports that run when a module is imported."""
    for statement in statements(tree.body):
        for imported in _imports(statement):
            for alias in imported.names:
                if isinstance(imported, ast.ImportFrom):
                    yield Imported(imported.module or "", imported.level, alias.name)
                else:
                    yield Imported(alias.name)


def _origins(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            origin = Imported(statement.module or "", statement.level, alias.name)
            yield alias.asname or alias.name, origin
        elif alias.asname:
            yield alias.asname, Imported(alias.name)
        else:
            yield alias.name.partition(".")[0], Imported(alias.name.partition(".")[0])


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes, without the bodies of functions and classes."""
    if not isinstance(node, _SCOPES):
        yield from ast.iter_child_nodes(node)


def _stored(node: ast.AST) -> set[str]:
    """Return the names that a piece of code binds in its own scope."""
    found: set[str] = set()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        found.add(node.name)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        found.add(node.id)
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        found.add(node.name)
    elif isinstance(node, ast.MatchMapping) and node.rest:
        found.add(node.rest)
    for child in inside(node):
        found |= _stored(child)
    return found


def _changed(node: ast.AST) -> set[str]:
    """Return the names of objects that a piece of code may mutate: `table["x"] = 1`, `table.update(...)`."""
    found: set[str] = set()
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        found |= {chain[0] for chain in [chain_of(node)] if chain}
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        found |= {chain[0] for chain in [chain_of(node.value.func)] if len(chain) > 1}
    for child in inside(node):
        found |= _changed(child)
    return found


def chain_of(node: ast.AST) -> Chain:
    """Return a name and its attributes, or an empty tuple for other expressions."""
    taken: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            taken.append(node.attr)
        else:
            taken.clear()
        node = node.value
    return (node.id, *reversed(taken)) if isinstance(node, ast.Name) else ()


def names_in(node: ast.AST) -> tuple[set[Chain], dict[str, Imported]]:
    """
    Return the names that a piece of code uses without binding them, and its own imports by name.

    A name that is local in one function and global in another counts as used.
    """
    found = _Uses()
    found.visit(node)
    return found.chains, found.imported


class _Uses(ast.NodeVisitor):
    def __init__(self) -> None:
        self.chains: set[Chain] = set()
        self.imported: dict[str, Imported] = {}
        self._local: list[set[str]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outer in (*node.decorator_list, node.args, *([node.returns] if node.returns else [])):
            self.visit(outer)
        self._scope(node.args, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._scope(node.args, [node.body])

    def _scope(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        local = {part.arg for part in ast.walk(arguments) if isinstance(part, ast.arg)}
        shared: set[str] = set()
        for part in body:
            local |= _stored(part)
            shared |= {
                name for inner in ast.walk(part) if isinstance(inner, ast.Global) for name in inner.names
            }
        self._local.append(local - shared)
        for part in body:
            self.visit(part)
        self._local.pop()

    def visit_Import(self, node: ast.Import) -> None:
        self.imported.update(_origins(node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.imported.update(_origins(node))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = chain_of(node)
        if chain and isinstance(node.value, (ast.Attribute, ast.Name)):
            self._use(chain)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use((node.id,))

    def _use(self, chain: Chain) -> None:
        if not any(chain[0] in names for names in self._local):
            self.chains.add(chain)
