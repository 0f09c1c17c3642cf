"""Consuming one queue for one tenure."""
