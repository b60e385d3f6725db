"""The access control entries of a cluster."""
