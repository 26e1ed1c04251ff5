"""The composition root: the only place that builds adapters and knows in which order they start and stop.

``node`` holds the parts of one proxy, ``operations`` is what the management API may do with them, ``engine_child``
runs vLLM beside them, ``serving`` listens and ends in an orderly way.
"""

from concur_proxy.runtime.engine_child import VllmOptions
from concur_proxy.runtime.serving import serve

__all__ = ["VllmOptions", "serve"]
