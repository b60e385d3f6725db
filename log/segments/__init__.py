"""The segments of a partition log, their indexes, and reading from them."""
