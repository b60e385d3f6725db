"""Which segments go, and how they are removed."""
