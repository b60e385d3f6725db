"""Backlog quotas and TTL."""
