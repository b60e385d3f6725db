"""A cluster that commands ask over the Kafka protocol: a Seqgate gateway on any machine, or Apache Kafka."""
