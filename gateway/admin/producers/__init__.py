"""The active producers of each partition."""
