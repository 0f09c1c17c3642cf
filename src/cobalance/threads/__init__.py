"""Threads and event loops: calls in threads, wake-ups between them, and forks."""
