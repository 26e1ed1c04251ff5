"""Any OpenAI-compatible engine without metrics: the proxy's own ledger alone must do."""

from __future__ import annotations

from concur_proxy.engines.base import Engine

ENGINE: Engine = Engine(kind="none", metrics_path=None)
