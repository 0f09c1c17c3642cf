"""Membership in a group, for any kind of resource: the engine, and the public classes around it."""
