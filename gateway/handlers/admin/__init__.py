"""Topics, configurations and the cluster."""
