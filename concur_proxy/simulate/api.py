"""The simulator as a library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.core.regulator import MakeLaw
from concur_proxy.errors import ConfigError
from concur_proxy.sim.arms import Arm, arm
from concur_proxy.sim.result import Result
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.world import OnProgress, play
from concur_proxy.simulate.files import load_recordings, load_scenario


def run_scenario(
    scenario: Scenario | str | Path,
    *,
    law: str | MakeLaw = "aimd",
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    gate: Mapping[str, Any] | None = None,
    traces: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Play one scenario once and return what came of it.

    ``scenario``: a scenario, its name, or the path of its file. ``law``: a name with its ``params``, ``fixed:20``,
    ``requests:8``, or a function ``(*, minimum, maximum) -> Law`` for a law of your own. ``gate``: settings of the gate
    over the scenario's own, such as ``{"pause": "eager"}``. ``traces``: recorded sessions other than the package's.
    ConfigError says what is wrong with any of these.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    chosen = arm(law, params) if isinstance(law, str) else Arm(getattr(law, "__name__", "own"), law)
    settings = dict(gate or {})
    check_gate({**scenario.gate, **settings, **chosen.gate})
    recordings = load_recordings(traces) if any(part.recorded for part in scenario.agents) else ()
    return play(scenario, chosen, gate=settings, recorded=recordings, seed=seed, on_progress=on_progress)


def check_gate(settings: Mapping[str, Any]) -> None:
    """Refuse settings that the gate does not have."""
    known = [field.name for field in fields(GatePolicy)]
    for name in settings:
        if name not in known:
            raise ConfigError(f"gate: {name} is no setting of the gate; there are {', '.join(known)}")
    try:
        Gate(GatePolicy(**settings))
    except KeyError as error:
        raise ConfigError(f"gate: there is no order {error}") from None
