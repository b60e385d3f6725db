"""Produce, Fetch, and the APIs that look up or move the offsets of a partition."""
