"""What a receiver of traces keeps of what it is sent: every kind of value goes there and is read back."""

from mttp.reading.probing.cases import ProbeCase, every_case
from mttp.reading.probing.findings import ProbeFinding, suited
from mttp.reading.probing.probe import Probe, ProbeReport

__all__ = ["ProbeCase", "ProbeFinding", "Probe", "ProbeReport", "every_case", "suited"]
