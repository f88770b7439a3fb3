"""Internals."""
