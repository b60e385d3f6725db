"""Makes a partition log durable: flush tickets, side files, the log start offset."""
