"""One partition: any history of a tenure, and every interleaving of its handovers, beside an oracle of order and acks."""
