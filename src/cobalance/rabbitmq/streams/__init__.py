"""Consuming one stream for one tenure, and where it begins and ends."""
