"""Any history of one partition's tenure: the production core, a broker of a few lines, and an oracle beside them."""
