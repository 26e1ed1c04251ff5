"""Says what is wrong or missing between proxy and engines, in plain words, with the flag to set.

``questions`` asks an engine, ``patience`` how long it keeps a connection, ``warmth`` whether it tells of cached tokens;
``facts`` is what came of it. ``engines`` and ``proxies`` judge the facts and know no network. ``examination`` puts it
together for ``concur-proxy doctor``.
"""

from concur_proxy.doctor.examination import Examination, examine
from concur_proxy.doctor.findings import Finding, Weight

__all__ = ["Examination", "Finding", "Weight", "examine"]
