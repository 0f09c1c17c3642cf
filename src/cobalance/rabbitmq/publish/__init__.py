"""Publishing: routing, encoding and confirms."""
