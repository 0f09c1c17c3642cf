"""Chaos: real member processes, real servers, faults by a seed, and a history that is judged.

Reading order: ``options`` (what is run), ``faults`` and ``server_faults`` (what goes wrong), ``servers``, ``stage`` (proxies, members),
``run`` (in which order, and the performance), ``member`` and ``publisher`` (who writes the history), ``history`` (what is written),
``checker`` (what follows from it, pure, with Jepsen's names), ``report`` (how it is said).
"""
