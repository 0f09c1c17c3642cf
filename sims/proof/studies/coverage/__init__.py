"""How often the intervals and recommendations of ``tune`` hold, over churns drawn from the whole range of churn.py."""
