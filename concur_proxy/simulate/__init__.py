"""What will my cluster do? Scenarios played in virtual time: ``concur-proxy simulate``, and a library for tuning.

    from concur_proxy.simulate import load_scenario, run_scenario

    scenario = load_scenario("think-5s")
    for law in ("unlimited", "fixed:20", "aimd"):
        result = run_scenario(scenario, law=law, seed=1)
        print(law, result.figures.ended_s, result.figures.hit_rate)

``sim`` has the model itself, which is pure; here are files, processes, tables and plots around it. A law of your own
goes in as a function ``(*, minimum, maximum) -> Law``; its guards are up to you (``windows.guarded``). ``Result`` has
``figures`` for tables, ``turns`` and ``jobs`` one by one, ``series`` over time, and ``score``: less is better.
"""

from concur_proxy.sim.result import Result
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.api import run_scenario
from concur_proxy.simulate.files import load_scenario, scenario_names

__all__ = ["Result", "Scenario", "load_scenario", "run_scenario", "scenario_names"]
