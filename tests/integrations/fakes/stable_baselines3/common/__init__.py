"""As in the library."""
