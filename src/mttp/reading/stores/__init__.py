"""
Reads spans from trace stores by their query APIs.

    jaeger://HOST:16686?run=...       Jaeger, or a store with its API, such as VictoriaTraces
    tempo://HOST:3200?q={...}         Tempo
    phoenix://HOST:6006?run=...       Phoenix
    mlflow://HOST:5000?run=...        MLflow tracking server
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from mttp.reading.stores.address import Address
from mttp.reading.stores.store import Store

__all__ = ["SCHEMES", "Address", "Store", "is_address", "open"]

SCHEMES: Mapping[str, str] = {
    "jaeger": "mttp.reading.stores.jaeger",
    "tempo": "mttp.reading.stores.tempo",
    "phoenix": "mttp.reading.stores.phoenix",
    "mlflow": "mttp.reading.stores.mlflow",
}
"""Modules with a function `open(address)` that returns the store, by scheme."""


def is_address(given: str) -> bool:
    """Whether the text is the address of a trace store."""
    return given.partition("://")[0] in SCHEMES and "://" in given


def open(given: str) -> Store:
    """The store at an address, without a request; raises ReadError if the address is invalid."""
    address = Address.parse(given)
    store: Store = import_module(SCHEMES[address.scheme]).open(address)
    return store
