"""What runs beside the code that a component reaches, and changes what that code does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from mttp.rewards.bindings import Chain, Imported, Names, imported_modules, statements
from mttp.rewards.side_effects import changed_globals, changed_names, registered_with

__all__ = ["Reached", "changes"]

_MOST_FILES = 200


class Reached(Protocol):
    """The code that a component reaches in its own package or folder."""

    @property
    def seen(self) -> set[tuple[str, str]]:
        """Module and name of each definition; an empty name for the module itself."""

    @property
    def is_installed(self) -> bool:
        """Whether the code is an installed distribution's, whose version says what it is."""

    @property
    def folder(self) -> Path | None:
        """The spec's folder, where the code lies in it."""

    def names(self, module: str) -> Names | None:
        """The names of a module of its own."""

    def tree(self, module: str) -> ast.Module | None:
        """The syntax of a module of its own."""

    def absolute(self, module: str, imported: Imported) -> str:
        """The full name of a module that another one imports."""

    def origin(self, module: str, chain: Chain) -> tuple[str, Chain] | None:
        """The module of its own that a name with attributes leads to, and what is left of them."""


def changes(reached: Reached) -> Iterator[str]:
    """What changes the code that is reached, and is no part of it, in words."""
    for module in sorted({module for module, _ in reached.seen}):
        yield from _filled_later(reached, module)
    for module in sorted(_loaded(reached)):
        tree = reached.tree(module)
        for statement in statements(tree.body) if tree is not None else ():
            yield from _patches(reached, module, statement)
            yield from _registrations(reached, module, statement)


def _loaded(reached: Reached) -> set[str]:
    """The modules that were reached, and of the user's own code those that they import and those beside."""
    waiting = {module for module, _ in reached.seen}
    if reached.is_installed:
        return waiting
    if reached.folder is not None:
        waiting |= {path.stem for path in sorted(reached.folder.glob("*.py"))[:_MOST_FILES]}
    found: set[str] = set()
    while waiting and len(found) < _MOST_FILES:
        module = waiting.pop()
        tree = reached.tree(module) if module not in found else None
        if tree is not None:
            found.add(module)
            for imported in imported_modules(tree):
                parts = f"{reached.absolute(module, imported)}.{imported.name or ''}".strip(".").split(".")
                waiting |= {".".join(parts[: end + 1]) for end in range(len(parts))}
    return found


def _filled_later(reached: Reached, module: str) -> Iterator[str]:
    """Names whose things are changed by functions that are not reached, and that others may call."""
    names = reached.names(module)
    for name, bound in names.bound.items() if names is not None else ():
        if (module, name) in reached.seen:
            continue
        for statement in bound:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for filled in sorted(changed_globals(statement)):
                    if (module, filled) in reached.seen:
                        yield f"{module}.{filled} is filled at run time, by {module}.{name}"


def _patches(reached: Reached, module: str, statement: ast.stmt) -> Iterator[str]:
    """Attributes of other modules that a module assigns as it is imported."""
    names = reached.names(module)
    for chain in sorted(set(changed_names(statement))):
        bound = names.bound.get(chain[0], []) if names is not None else []
        imported = [one for one in bound if isinstance(one, Imported)]
        if not imported or len(imported) < len(bound):
            continue
        found = reached.origin(module, chain)
        if found is None:
            if len(chain) > 1:
                yield f"{module} assigns {'.'.join(chain)}"
        elif found[0] != module and _is_reached(reached, *found):
            yield f"{module} assigns {'.'.join((found[0], *found[1]))}"


def _is_reached(reached: Reached, module: str, chain: Chain) -> bool:
    return (module, chain[0] if chain else "") in reached.seen


def _registrations(reached: Reached, module: str, statement: ast.stmt) -> Iterator[str]:
    """Registries that are filled by decorating, deriving or calling something as a module is imported."""
    for name, chain in registered_with(statement):
        found = reached.origin(module, chain)
        if found is None or not found[1]:
            continue
        origin, (target, *rest) = found
        if rest and (origin, target) in reached.seen and (module, name) not in reached.seen:
            yield f"{origin}.{target} is filled at run time, by {module}.{name or '.'.join(chain)}"
        names = reached.names(origin)
        for bound in names.bound.get(target, []) if names is not None else []:
            for filled in sorted(changed_globals(bound)) if isinstance(bound, ast.stmt) else ():
                if (origin, filled) in reached.seen:
                    yield f"{origin}.{filled} is filled at run time, by {origin}.{target}"
