"""One command line a file, each with a ``main(words)`` that returns the exit code."""
