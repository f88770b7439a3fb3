"""What a receiver of traces keeps of what it is sent: every kind of value goes there and is read back."""

from mttp.probing.cases import Case, every_case
from mttp.probing.findings import Finding, suited
from mttp.probing.probe import Probe, Report

__all__ = ["Case", "Finding", "Probe", "Report", "every_case", "suited"]
