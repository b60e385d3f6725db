"""Reads of partitions that another gateway leads: their history, from the bucket."""
