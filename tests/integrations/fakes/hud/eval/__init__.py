"""A stand-in for HUD's evaluations."""
