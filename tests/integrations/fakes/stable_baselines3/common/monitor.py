"""The library's own recording of episodes, which the tests do not use."""


class Monitor:
    """Would be around an environment."""
