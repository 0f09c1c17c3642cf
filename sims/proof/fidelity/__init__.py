"""The simulator against reality: one story of churn, played by real servers and processes, and played in virtual time.

Reading order: ``story`` (what happens, as data), ``load`` (the messages, as data), ``diary`` (what handlers and members
record), ``member``, ``stage`` and ``real`` (the real run), ``machine`` (what one call, hint, channel and sleep take
here), ``network`` and ``simulated`` (the simulated run), ``figures`` (both in the same terms), ``compare`` (side by
side), ``table`` (Markdown), ``confluent``.
"""
