"""Loading a partition log from its files after a stop of any kind."""
