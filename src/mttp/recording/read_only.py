"""Plain data that refuses changes, where a change would not be recorded."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["read_only"]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("the inputs of an open episode are read-only; set_inputs(name=value) records one")


class _ReadOnlyDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ({**self},)  # copies may change


class _ReadOnlyList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([*self],)


def read_only(value: Any) -> Any:
    """Return decoded JSON whose mappings and lists, at any depth, raise TypeError at a change."""
    if isinstance(value, dict):
        return _ReadOnlyDict((name, read_only(member)) for name, member in value.items())
    return _ReadOnlyList(map(read_only, value)) if isinstance(value, list) else value
