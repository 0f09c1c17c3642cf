"""`make stories`: everything that goes wrong, told in virtual time with many seeds, and every promise checked after every step."""
