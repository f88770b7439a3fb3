"""What the values of two sides show: independent units, intervals, tests and verdicts."""
