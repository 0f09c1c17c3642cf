"""`make stories`: everything that goes wrong, in virtual time with many seeds; every promise is checked after every
step.
"""
