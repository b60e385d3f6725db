"""Damaged batches: what is known of them, and giving them up."""
