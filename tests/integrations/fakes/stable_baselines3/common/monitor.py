"""The library's own recording of episodes, which nobody puts around anything here."""


class Monitor:
    """Would be around an environment."""
