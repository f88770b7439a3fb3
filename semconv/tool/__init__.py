"""The registry's own tool: reads the yaml, checks it and writes everything that is derived from it."""
