"""A cluster as `seqgate cluster` sees it: its gateways, and its bucket without a running gateway."""
