"""One story of joins, leaves and kills on Cobalance and on its peers, in the same run and judged alike."""
