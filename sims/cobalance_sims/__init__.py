"""Cobalance in virtual time: the production Lua and the production session under seeded faults, watched by checkers."""
