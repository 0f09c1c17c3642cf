"""The TLA+ specification: checks it with TLC, and validates recorded histories against it."""
