"""The bucket of a cluster, as commands see it without a running gateway."""
