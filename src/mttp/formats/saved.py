"""What a library saved and an episode has no place for, so that its record can be written again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from mttp.formats.fields import as_list, as_mapping
from mttp.model.episodes import Episode

__all__ = ["Derive", "forms", "keeping", "saved_record", "with_forms"]

Derive: TypeAlias = Callable[[Episode], Mapping[str, Any]]
"""Returns the fields of a record that follow from an episode."""


def keeping(
    format: str, record: Mapping[str, Any], episode: Episode, derive: Derive, content: Collection[str]
) -> Episode:
    """
    Return the episode with the fields of its record that `derive` does not give back, as metadata.

    Of fields in `content`, only the names are kept, because metadata is not withheld with content.
    """
    derived = derive(episode)
    different = {
        name: value
        for name, value in record.items()
        if name != "_place" and not (name in derived and _is_equal(value, derived[name]))
    }
    changed = [name for name in different if name in content]
    fields = {name: value for name, value in different.items() if name not in content}
    return _with(format, episode, fields=fields, changed=changed)


def with_forms(format: str, episode: Episode, forms: Mapping[str, object]) -> Episode:
    """Return the episode with the forms that its contents had in the file."""
    return _with(format, episode, form=forms)


def forms(format: str, episode: Episode) -> Mapping[str, Any]:
    """Return the forms that an episode's contents had in the file."""
    return as_mapping(_saved(format, episode).get("form"))


def saved_record(format: str, episode: Episode, derive: Derive) -> dict[str, Any]:
    """
    Return the record of an episode as its library saves it.

    Raises ValueError if the episode was not imported from the format, or its record can't be given back.
    """
    if _key(format) not in episode.metadata:
        raise ValueError(f"not one of {format}")
    if episode.omissions or any(step.omissions for step in episode.steps):
        raise ValueError("content was withheld or redacted when it was recorded")
    saved = _saved(format, episode)
    if changed := as_list(saved.get("changed")):
        raise ValueError(f"{', '.join(map(str, changed))}: not read in full when the file was imported")
    return {**derive(episode), **as_mapping(saved.get("fields"))}


def _with(format: str, episode: Episode, **facts: object) -> Episode:
    saved = {**_saved(format, episode), **{name: value for name, value in facts.items() if value}}
    return replace(episode, metadata={**episode.metadata, _key(format): saved})


def _saved(format: str, episode: Episode) -> Mapping[str, Any]:
    return as_mapping(episode.metadata.get(_key(format)))


def _key(format: str) -> str:
    return f"{format}_saved"


def _is_equal(left: object, right: object) -> bool:
    """Return whether two values are equal as JSON; 1 equals 1.0, but not true."""
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and left == right:
        return isinstance(left, bool) == isinstance(right, bool)
    return json.dumps(left, sort_keys=True, default=repr) == json.dumps(right, sort_keys=True, default=repr)
