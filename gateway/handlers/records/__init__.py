"""Produce, Fetch and what asks for offsets of records."""
