"""Summaries, episodes and findings as text for people and as documents for programs."""
