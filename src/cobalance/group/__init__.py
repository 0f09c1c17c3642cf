"""Membership in a group, for any resources: the engine that keeps it, and the faces that programs see."""
