"""Shows and changes client quotas (`seqgate quotas`)."""
