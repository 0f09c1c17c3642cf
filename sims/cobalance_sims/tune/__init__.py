"""Recommends session, revocation, heartbeat, grace and gathering times for a group's churn and preferences."""
