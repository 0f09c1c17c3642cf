"""`make bench`: each figure against its raw peer, in one run. Benchmarks, never timed tests."""
