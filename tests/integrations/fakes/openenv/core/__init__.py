"""A stand-in for the core of OpenEnv."""
