"""The TLA+ document: its checking by TLC, and the validation of recorded histories against it."""
