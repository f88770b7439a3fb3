"""A stand-in for Inspect AI: hooks, and a runner that calls them."""
