"""Kafka as a peer: its broker's jars from Maven Central, its client from PyPI, both fetched when they are first measured."""
