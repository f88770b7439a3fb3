"""
Spans as bytes: what a process does itself, and what a helper of it does.

Nothing is imported here: the helper comes through this file, and should start quickly.
"""
