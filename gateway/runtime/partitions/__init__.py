"""Partitions: the requests that wait for them, group commit, and reading."""
