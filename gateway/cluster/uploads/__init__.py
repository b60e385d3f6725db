"""Uploads of the history of partitions, and the deletion of what the bucket needs no more."""
