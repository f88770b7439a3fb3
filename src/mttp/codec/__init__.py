"""The only place where values become attributes and attributes become values again."""
