"""Detection of code outside of a component that changes its behaviour: patches and registries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from mttp.rewards.bindings import Chain, Imported, Names, imported_modules, statements
from mttp.rewards.side_effects import changed_globals, changed_names, registered_with

__all__ = ["Reached", "changes"]

_MAX_MODULES = 200


class Reached(Protocol):
    """The code that a component reaches in its own package or folder."""

    @property
    def seen(self) -> set[tuple[str, str]]:
        """The module and name of each definition, and an empty name for each module."""

    @property
    def is_installed(self) -> bool:
        """Whether the code belongs to an installed distribution, whose version identifies it."""

    @property
    def folder(self) -> Path | None:
        """The spec's folder, if the code is in it; else None."""

    def names(self, module: str) -> Names | None:
        """Return the names of one of the component's own modules."""

    def tree(self, module: str) -> ast.Module | None:
        """Return the syntax tree of one of the component's own modules."""

    def absolute(self, module: str, imported: Imported) -> str:
        """Return the absolute name of an imported module."""

    def origin(self, module: str, chain: Chain) -> tuple[str, Chain] | None:
        """Return the own module that defines a name, and the name's remaining attributes."""


def changes(reached: Reached) -> Iterator[str]:
    """Yield messages about changes to the reached code that the digest does not cover."""
    for module in sorted({module for module, _ in reached.seen}):
        yield from _filled_later(reached, module)
    for module in sorted(_loaded(reached)):
        tree = reached.tree(module)
        for statement in statements(tree.body) if tree is not None else ():
            yield from _patches(reached, module, statement)
            yield from _registrations(reached, module, statement)


def _loaded(reached: Reached) -> set[str]:
    """Return the reached modules; for user code also those that they import and those in the folder."""
    waiting = {module for module, _ in reached.seen}
    if reached.is_installed:
        return waiting
    if reached.folder is not None:
        waiting |= {path.stem for path in sorted(reached.folder.glob("*.py"))[:_MAX_MODULES]}
    found: set[str] = set()
    while waiting and len(found) < _MAX_MODULES:
        module = waiting.pop()
        tree = reached.tree(module) if module not in found else None
        if tree is not None:
            found.add(module)
            for imported in imported_modules(tree):
                parts = f"{reached.absolute(module, imported)}.{imported.name or ''}".strip(".").split(".")
                waiting |= {".".join(parts[: end + 1]) for end in range(len(parts))}
    return found


def _filled_later(reached: Reached, module: str) -> Iterator[str]:
    """Yield reached objects that are mutated by functions which are not reached."""
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
    """Yield attributes of other modules that a module assigns at import."""
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
    """Yield registries that decorators, subclasses or calls fill when a module is imported."""
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
