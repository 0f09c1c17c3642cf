"""Real member processes under test, and what they record: shared by the demo, `make fidelity` and `make chaos`.

Reading order: ``message`` (what is published), ``diary`` (what a process records), ``member`` (the process),
``process`` (the same, as seen by its parent), ``stage`` (a group of them), ``load`` (the publisher).
"""
