"""The gateways of a cluster: who leads how much, moves of partitions, and drained gateways."""
