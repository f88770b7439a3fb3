"""Messages and tokens of verifiers' nodes: out of them into steps, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mttp.formats.fields import as_list, as_mapping
from mttp.model.episodes import Step, Tokens

__all__ = ["node_tokens", "restored_nodes", "unmapped_nodes"]

_STREAMS = {
    "logprobs": "logprobs",
    "advantages": "advantages",
    "reference_logprobs": "ref_logprobs",
    "trainer_logprobs": "trainer_logprobs",
    "entropies": "entropies",
}
"""Values per sampled token, by the field of a node; and the array of `Tokens`."""
_DECIMALS = 4
"""Decimals of these values in the files that verifiers writes."""
_PER_TOKEN = ("token_ids", "mask", *_STREAMS)


def node_tokens(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, list[int], Tokens | None]]:
    """
    Yield the position of each sampled node, those of the messages before it, and its tokens.

    The messages are those since the sampled node before it on its path.
    """
    indices: dict[int, int] = {}
    lengths: dict[int, int] = {}
    for position, inputs, before in _turns(nodes):
        node = nodes[position]
        ids = [*as_list(node.get("token_ids"))]
        first = _first_sampled(node)
        prompt = [token for place in inputs for token in as_list(nodes[place].get("token_ids"))] + ids[:first]
        prefix = lengths.get(before, 0) if before is not None else 0
        tokens = None
        if prompt or ids:
            arrays: dict[str, Any] = {name: node[key] for key, name in _STREAMS.items() if node.get(key)}
            mask = [*as_list(node.get("mask"))][first:]
            arrays |= {"ids": ids[first:], "prompt_ids": prompt, "masks": None if all(mask) else mask}
            tokens = Tokens(
                parent=(indices[before], prefix) if before is not None and prefix else None,
                **arrays,
            )
        indices[position] = len(indices)
        lengths[position] = prefix + len(prompt) + len(ids) - first
        yield position, inputs, tokens


def unmapped_nodes(nodes: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what steps do not have of each node; `tokens` is the number of tokens that were taken out."""
    copies = [dict(as_mapping(original)) for original in nodes]
    turns = [*_turns(copies)]
    mapped = {place for position, inputs, _ in turns for place in (position, *inputs)}
    for position in mapped:
        node = copies[position]
        del node["message"]
        if _is_plain(node):
            node["tokens"] = len(as_list(node.get("token_ids")))
            node["sampled_tokens"] = sum(as_list(node.get("mask")))
            node["empty"] = {name: node[name] for name in _PER_TOKEN if name in node and not node[name]}
            for name in _PER_TOKEN:
                node.pop(name, None)
    return copies


def restored_nodes(nodes: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the nodes with the messages and tokens of the steps, in the order of the steps."""
    restored = [dict(node) for node in nodes]
    turns = [*_turns(restored)]
    for (position, inputs, _), step in zip(turns, steps[: len(turns)], strict=True):
        observation = step.observation or ()
        arrays = {} if step.tokens is None else step.tokens.arrays()
        prompt_ids = arrays["prompt_ids"].tolist() if "prompt_ids" in arrays else []
        for place, message in zip(inputs, observation, strict=True):
            count = restored[place].get("tokens", len(as_list(restored[place].get("token_ids"))))
            _restore(restored[place], message, prompt_ids[:count], [], {})
            prompt_ids = prompt_ids[count:]
        ids = arrays["ids"].tolist() if "ids" in arrays else []
        streams = {
            field: [round(value, _DECIMALS) for value in arrays[name].tolist()]
            for field, name in _STREAMS.items()
            if name in arrays
        }
        _restore(restored[position], step.action, prompt_ids, ids, streams)
    return restored


def _restore(
    node: dict[str, Any], message: Any, prompt: list[int], ids: list[int], streams: Mapping[str, list[float]]
) -> None:
    """Put message, tokens and values per sampled token back into a node; a second time does nothing."""
    node.setdefault("message", message)
    if "tokens" not in node:
        return
    del node["tokens"]
    sampled, empty = node.pop("sampled_tokens"), node.pop("empty")
    node.update(empty)
    if prompt or ids:
        node["token_ids"] = prompt + ids
        node["mask"] = [False] * (len(prompt) + len(ids) - sampled) + [True] * sampled
    node.update(streams)


def _turns(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, list[int], int | None]]:
    """Yield each sampled node, the unsampled ones before it on its path, and the sampled one before those."""
    for position, node in enumerate(nodes):
        if not node.get("sampled"):
            continue
        inputs: list[int] = []
        above = node.get("parent")
        while above is not None and not nodes[above].get("sampled"):
            if above in inputs:
                raise ValueError(f"node {above} is its own ancestor")
            inputs.append(above)
            above = nodes[above].get("parent")
        if above is not None and above >= position:
            raise ValueError(f"node {position} comes before its ancestor {above}")
        yield position, inputs[::-1], above


def _first_sampled(node: Mapping[str, Any]) -> int:
    """Return the position of the first sampled token; the number of tokens if none is."""
    mask = [*as_list(node.get("mask"))]
    return mask.index(True) if True in mask else len(as_list(node.get("token_ids")))


def _is_plain(node: Mapping[str, Any]) -> bool:
    """Return whether steps have all of a node's tokens: sampled ones at the end, with a value for each."""
    ids, mask = [*as_list(node.get("token_ids"))], [*as_list(node.get("mask"))]
    sampled = sum(1 for flag in mask if flag is True)
    if not node.get("sampled") and (sampled or any(node.get(field) for field in _STREAMS)):
        return False
    if mask != [False] * (len(ids) - sampled) + [True] * sampled:
        return False
    streams = [node[field] for field in _STREAMS if node.get(field)]
    return all(len(values) == sampled and all(type(value) is float for value in values) for values in streams)
