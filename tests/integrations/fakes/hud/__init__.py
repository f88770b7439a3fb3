"""A stand-in for HUD."""
