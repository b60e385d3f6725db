"""Writes records to a topic (`seqgate produce`)."""
