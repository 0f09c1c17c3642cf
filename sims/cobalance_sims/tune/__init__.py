"""Which session, revocation, heartbeat, grace and gathering times a group should run, for its churn and what its users prefer."""
