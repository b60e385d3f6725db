"""Sweeps, which find orphaned files and state, and the list of background tasks."""
