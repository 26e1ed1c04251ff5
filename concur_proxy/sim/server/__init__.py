"""The embedded engine behind HTTP: the only part of ``sim`` with a clock, sockets and processes.

``driver`` paces the engine by the clock, ``service`` turns a call into engine requests and waits for their tokens,
``app`` speaks HTTP, ``process`` runs all that in the foreground or as a child.
"""

from concur_proxy.sim.options import EngineOptions
from concur_proxy.sim.server.app import build_app
from concur_proxy.sim.server.process import EngineServer, run

__all__ = ["EngineOptions", "EngineServer", "build_app", "run"]
