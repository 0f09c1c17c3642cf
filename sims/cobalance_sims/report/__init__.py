"""The report: one page of pictures that needs no network, made from a sweep, a journal or a recommendation. See
``commands/report.py``.
"""
