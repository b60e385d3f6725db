"""The metrics of running gateways."""
