"""Client quotas at work: they follow the metadata, and requests are charged to them."""
