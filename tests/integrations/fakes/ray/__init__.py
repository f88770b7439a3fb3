"""A stand-in for Ray: the parts of RLlib that mttp calls or patches."""

__version__ = "2.60.0"
