"""Partitions with their waiters, group commit, and reading."""
