"""Sweeps, which find what belongs to nothing, and the long work of a gateway."""
