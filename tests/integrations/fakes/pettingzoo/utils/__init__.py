"""The modules of PettingZoo that define environments and wrappers."""
