"""Backlog quotas and message TTL of this node's topics."""
