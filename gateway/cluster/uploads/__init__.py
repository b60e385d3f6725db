"""Uploads of the history of partitions, and the deletion of objects that are not needed any more."""
