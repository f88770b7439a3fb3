"""Names in Python: what a key, a metric, a span or an enum is called in the generated modules."""

from __future__ import annotations

__all__ = ["class_name", "constant", "enum_class"]

OWN = "mttp."
"""The namespace that generated names leave out."""


def constant(key: str) -> str:
    """
    The constant of an attribute or a metric.

    >>> constant("mttp.episode.id"), constant("error.type")
    ('EPISODE_ID', 'ERROR_TYPE')
    """
    return key.removeprefix(OWN).upper().replace(".", "_")


def enum_class(key: str) -> str:
    """
    The class that holds the values of an enum attribute.

    >>> enum_class("mttp.reward.status"), enum_class("gen_ai.operation.name")
    ('RewardStatus', 'GenAiOperationName')
    """
    return class_name(key.removeprefix(OWN).replace(".", "_"))


def class_name(snake: str) -> str:
    """`snake_case` in CapWords."""
    return "".join(word.capitalize() for word in snake.split("_"))
