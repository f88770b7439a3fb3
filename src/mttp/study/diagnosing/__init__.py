"""Detectors of diseases of a training run, each a function of its recording."""
