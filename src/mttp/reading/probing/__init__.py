"""Tests which values a receiver of traces keeps: sends every kind of value and reads it back."""

from mttp.reading.probing.cases import SERVICE, ProbeCase, every_case
from mttp.reading.probing.findings import ProbeFinding, suited
from mttp.reading.probing.probe import Probe, ProbeReport

__all__ = ["SERVICE", "ProbeCase", "ProbeFinding", "Probe", "ProbeReport", "every_case", "suited"]
