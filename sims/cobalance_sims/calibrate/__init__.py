"""Fits the inputs of a choice of timeouts to a group's history: its churn, drains, handlers and heartbeats.

Spark reduces a journal of any length to small aggregates (``tallies``); they are fitted on the driver, with numpy.
"""
