"""Member programs, one for each product, that all report in the same way."""
