"""`cobalance bench`: each figure against its raw peer, in one run. Benchmarks, never timed tests."""

from cobalance.bench.run import main

__all__ = ["main"]
