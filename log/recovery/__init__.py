"""Loads a partition log from its files after any kind of stop."""
