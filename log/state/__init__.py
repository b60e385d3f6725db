"""State that is derived from a log's batches: producers, transactions, delays, names, leader epochs."""
