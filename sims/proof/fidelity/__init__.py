"""The simulator against reality: one story of churn, told by real servers and processes, and told in virtual time.

Reading order: ``story`` (what happens, as data), ``load`` (the messages, as data), ``diary`` (what handlers and members write down), ``member``, ``stage``
and ``real`` (the real telling), ``machine`` (what one call, hint, channel and sleep take here), ``network`` and ``simulated``
(the simulated telling), ``figures`` (both in the same words), ``compare`` (side by side), ``table`` (Markdown), ``confluent``.
"""
