"""What the proxy remembers of its own last day: how windows, sessions and engines were, every ten seconds. Pure.

``moment``: what is known of a backend, or of all, at one time; ``meter`` makes rates of counters; ``ring`` keeps
moments, ``history`` one ring for each backend and one for all of them.
"""

from concur_proxy.history.history import INTERVAL_S, SPAN_S, History
from concur_proxy.history.meter import Counters, Meter
from concur_proxy.history.moment import Moment
from concur_proxy.history.ring import Ring

__all__ = ["INTERVAL_S", "SPAN_S", "Counters", "History", "Meter", "Moment", "Ring"]
