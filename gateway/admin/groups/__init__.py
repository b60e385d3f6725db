"""Classic, consumer and share groups, and their offsets."""
