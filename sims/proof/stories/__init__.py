"""`make stories`: everything that goes wrong, in virtual time with many seeds; promises are checked at every step."""
