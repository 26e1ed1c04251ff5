"""Measures what a proxy costs, side by side with others: see ``bench/proxy_overhead.py``.

Four processes take part: the driver (``rounds``), the engine's stand-in (``upstream``), the load (``load``, driven
through ``worker``) and one proxy at a time (``ways``). ``kernel`` reads what a process used, ``summary`` makes medians
of the rounds, ``page`` the table.
"""
