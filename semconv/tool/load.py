"""The yaml files: read from a folder, and turned into the registry that they define."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tool.registry import Attribute, Group, Member, Ref, Registry, Signal

__all__ = ["MANIFEST", "UPSTREAM", "Document", "UnusableInput", "build", "document", "read"]

MANIFEST = "manifest.yaml"
UPSTREAM = "upstream.yaml"
MODEL = "model"

SIGNALS = {"spans": "type", "metrics": "name", "entities": "type"}
"""Sections that define signals, each with the property that names one."""


class UnusableInput(Exception):  # noqa: N818 - reads as what it says
    """A file of the registry is missing or is not YAML, so that nothing can be said about the rest."""


class _Loader(yaml.SafeLoader):
    """YAML in which a mapping that states a key twice is an error, where the last would win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is stated twice", node.start_mark
                )
        return super().construct_mapping(node, deep=deep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file as YAML gives it, before its shape is known to be right."""

    file: str
    """Path below the registry's folder, e.g. `"model/run.yaml"`."""
    content: Any
    """What the file holds."""


def read(folder: Path) -> list[Document]:
    """Every file of the registry in `folder`: manifest, upstream names, then the model by name."""
    model = sorted((folder / MODEL).glob("*.yaml"))
    if not model:
        raise UnusableInput(f"{folder / MODEL}: no yaml file there")
    return [document(path, folder=folder) for path in (folder / MANIFEST, folder / UPSTREAM, *model)]


def document(path: Path, *, folder: Path) -> Document:
    """The file at `path`, named by its place below `folder`."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UnusableInput(f"{path}: {error}") from error
    return Document(file=path.relative_to(folder).as_posix(), content=content)


def build(documents: Iterable[Document]) -> Registry:
    """The registry that `documents` define; their shape must be right already."""
    manifest: Mapping[str, Any] = {}
    sources: Mapping[str, Mapping[str, str]] = {}
    upstream: list[Attribute] = []
    attributes: list[Attribute] = []
    groups: list[Group] = []
    signals: list[Signal] = []
    for document in documents:
        content, file = document.content, document.file
        if file == MANIFEST:
            manifest = content
        elif file == UPSTREAM:
            sources = content["sources"]
            upstream += [_reused(body, file) for body in content["attributes"]]
        else:
            attributes += [_attribute(body, file) for body in content.get("attributes", ())]
            groups += [_group(body, file) for body in content.get("attribute_groups", ())]
            signals += [
                _signal(section, body, file) for section in SIGNALS for body in content.get(section, ())
            ]
    return Registry(
        manifest=manifest,
        attributes=tuple(attributes),
        upstream=tuple(upstream),
        groups=tuple(groups),
        signals=tuple(signals),
        sources=sources,
    )


def _attribute(body: Mapping[str, Any], file: str) -> Attribute:
    members = tuple(_member(member) for member in _members(body["type"]))
    return Attribute(
        key=body["key"],
        type=_enum_type(members) if members else body["type"],
        members=members,
        brief=body["brief"].strip(),
        note=body.get("note", "").strip(),
        stability=body["stability"],
        examples=tuple(body.get("examples", ())),
        deprecated=body.get("deprecated"),
        annotations=body.get("annotations", {}),
        file=file,
        source=body.get("source"),
    )


def _reused(body: Mapping[str, Any], file: str) -> Attribute:
    decided = {"annotations": {"mttp": {"content": body["content"]}}} if "content" in body else {}
    return _attribute({**body, **decided}, file)


def _members(type_: Any) -> Iterable[Mapping[str, Any]]:
    return type_["members"] if isinstance(type_, Mapping) else ()


def _member(body: Mapping[str, Any]) -> Member:
    return Member(
        id=body["id"],
        value=body.get("value", body["id"]),
        brief=(body.get("brief") or "").strip(),
        stability=body["stability"],
    )


def _enum_type(members: tuple[Member, ...]) -> str:
    names = {bool: "boolean", int: "int", str: "string"}
    return names[type(members[0].value)]


def _group(body: Mapping[str, Any], file: str) -> Group:
    return Group(id=body["id"], refs=_refs(body.get("attributes", ())), file=file)


def _signal(section: str, body: Mapping[str, Any], file: str) -> Signal:
    mentions = [*body.get("identity", ()), *body.get("description", ()), *body.get("attributes", ())]
    listed = {"attributes", "description", SIGNALS[section]}
    return Signal(
        section=section,
        name=body[SIGNALS[section]],
        refs=_refs(mentions),
        groups=tuple(mention["ref_group"] for mention in mentions if "ref_group" in mention),
        facts={
            name: [ref["ref"] for ref in value] if name == "identity" else _stripped(value)
            for name, value in body.items()
            if name not in listed
        },
        file=file,
    )


def _stripped(value: Any) -> Any:
    """`value` without the line end that a folded text has."""
    return value.strip() if isinstance(value, str) else value


def _refs(mentions: Iterable[Mapping[str, Any]]) -> tuple[Ref, ...]:
    return tuple(
        Ref(key=mention["ref"], refinements={name: mention[name] for name in mention if name != "ref"})
        for mention in mentions
        if "ref" in mention
    )
