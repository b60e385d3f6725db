"""Reads the records of a topic (`seqgate consume`)."""
