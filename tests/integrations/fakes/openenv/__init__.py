"""A stand-in for OpenEnv."""
