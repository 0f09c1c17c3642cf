"""Chaos: real member processes, real servers, seeded faults, and a history that is judged.

Reading order: ``options`` (what is run), ``faults`` and ``server_faults`` (what goes wrong), ``servers``, ``stage``
(proxies, members), ``run`` (the order of faults, and the performance), ``member`` and ``publisher`` (which write the
history, with ``cobalance.lab``), ``history`` (what is recorded), ``checker`` (what follows from it, pure, with Jepsen's names), ``report`` (how
it is presented). ``combinations``, ``combination_member`` and ``combination_play`` play every option instead, with the same checker.
"""
