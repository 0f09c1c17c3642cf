"""What drives the choice of timeouts, fitted to what a group did: its churn, its drains, its handlers, its heartbeats.

Spark makes small aggregates of a journal however long (``tallies``); the fits of them run on the driver, with numpy.
"""
