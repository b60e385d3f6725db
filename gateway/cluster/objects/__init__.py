"""The object store that makes a cluster durable: port, implementations, and the check of a store at start."""
