"""Stands for Stable-Baselines3 where that is not installed: as much of it as recording touches."""

__version__ = "2.9.2"
