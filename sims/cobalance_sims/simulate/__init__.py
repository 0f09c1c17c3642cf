"""Groups in virtual time: simulated members, coordinator and broker, their faults, and the checks."""
