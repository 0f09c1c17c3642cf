"""Chaos: real member processes, real servers, faults by a seed, and a history that is judged.

Reading order: ``options`` (what is run), ``faults`` (what goes wrong, as data), ``stage`` (servers, proxies, members), ``plan`` (in
which order), ``run`` (the performance), ``member`` and ``publisher`` (who writes the history), ``history`` (what is written),
``checker`` (what follows from it, pure, with Jepsen's names), ``report`` (how it is said).
"""
