"""Sweeps, which find orphaned files and state."""
