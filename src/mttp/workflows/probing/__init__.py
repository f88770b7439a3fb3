"""Tests which values a receiver of traces keeps: sends every kind of value and reads it back."""

from mttp.workflows.probing.cases import SERVICE, ProbeCase, every_case
from mttp.workflows.probing.findings import ProbeFinding, suited
from mttp.workflows.probing.probe import Probe, ProbeReport

__all__ = ["SERVICE", "ProbeCase", "ProbeFinding", "Probe", "ProbeReport", "every_case", "suited"]
