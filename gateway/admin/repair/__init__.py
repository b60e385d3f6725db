"""Damaged batches: reporting them, and giving them up."""
