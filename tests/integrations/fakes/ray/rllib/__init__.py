"""A package of Ray."""
