"""Several workers over one data directory: brokers of one cluster, under a process that supervises them."""
