"""Partitions that are out of service."""
