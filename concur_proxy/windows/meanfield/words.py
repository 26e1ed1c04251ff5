"""Why the window is what it is, in one sentence."""

from __future__ import annotations

from concur_proxy.windows.meanfield.model import Point

NOTHING_RETURNS = "hardly any turn continues a session, so there is no context to keep: nobody is held"


def cold(reason: str) -> str:
    return f"too little is known for a model yet; {reason}"


def warm_start(start: float, capacity: float) -> str:
    return f"too little is known for a model yet: sessions start on {start:.0f} of {capacity:.0f} tokens of cache"


def not_worth(demand: float) -> str:
    return f"all {demand:.0f} sessions that are here may be active: holding some would gain less than it costs"


def window(best: Point, context: float, demand: float) -> str:
    point = (
        f"{best.running:.1f} sessions running and {best.thinking:.1f} in tool calls, of {context:.0f} tokens each, do "
        f"{best.rate:.2f} turns/s, and turns that come back to their place find {best.hit_rate:.0%} of their context"
    )
    if best.window >= demand:
        return f"{point}; the {demand:.0f} sessions that are here are fewer"
    return f"{point}: more sessions would evict each other's contexts, fewer would leave the engine idle"
