"""Replays a churn against a group of the user's own, and compares what came of it with the prediction.

Reading order: ``posts`` (how both sides talk), ``member_process`` and ``agent`` (beside the members), ``plan`` (what is
to happen), ``stage`` (to whom), ``limits`` (when to stop), ``performance`` (it happens), ``prediction`` (what should come
of it), ``written`` (what is said).
"""
