"""Consuming one stream during one tenure, and finding its first and last offsets."""
