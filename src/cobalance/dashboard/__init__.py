"""A read-only dashboard of groups, for browsers. Needs the extra ``dashboard``."""
