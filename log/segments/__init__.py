"""The segments of a partition log, their indexes, and their reader."""
