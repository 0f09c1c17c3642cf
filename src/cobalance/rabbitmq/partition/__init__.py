"""Consuming one queue during one tenure."""
