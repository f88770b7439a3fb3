"""Detectors of problems in a training run, each a function of its recording."""
