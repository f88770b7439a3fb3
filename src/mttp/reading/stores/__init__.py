"""
Trace stores as sources: what their query APIs give, as spans.

    jaeger://HOST:16686?run=...       a Jaeger, or what speaks its API, such as VictoriaTraces
    tempo://HOST:3200?q={...}         a Tempo
    phoenix://HOST:6006?run=...       a Phoenix
    mlflow://HOST:5000?run=...        an MLflow tracking server
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
"""Scheme to the module whose `open(address)` makes the store."""


def is_address(given: str) -> bool:
    """Whether it names a trace store."""
    return given.partition("://")[0] in SCHEMES and "://" in given


def open(given: str) -> Store:
    """The store at an address, which nobody has asked yet; raises ReadError where the address is wrong."""
    address = Address.parse(given)
    store: Store = import_module(SCHEMES[address.scheme]).open(address)
    return store
