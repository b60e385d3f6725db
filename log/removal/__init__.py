"""Decides which segments retention removes, and removes segments."""
