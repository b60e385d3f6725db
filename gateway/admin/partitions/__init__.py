"""Offline partitions, and how to bring them back."""
