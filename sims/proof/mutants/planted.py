"""All planted bugs, in the order of the table in PROOF.md."""

from __future__ import annotations

from proof.mutants import (
    of_clocks,
    of_consumers,
    of_crashes,
    of_deletion,
    of_handover,
    of_leases,
    of_lists,
    of_partitions,
    of_repairs,
    of_requests,
    of_shares,
    of_tenures,
)

MUTANTS = (
    *of_requests.MUTANTS,
    *of_handover.MUTANTS,
    *of_clocks.MUTANTS,
    *of_crashes.MUTANTS,
    *of_shares.MUTANTS,
    *of_leases.MUTANTS,
    *of_tenures.MUTANTS,
    *of_repairs.MUTANTS,
    *of_lists.MUTANTS,
    *of_deletion.MUTANTS,
    *of_partitions.MUTANTS,
    *of_consumers.MUTANTS,
)
