"""The predictive check: whether a churn, simulated, does what its journal shows."""
