"""Summaries and episodes as text for people and as documents for programs."""
