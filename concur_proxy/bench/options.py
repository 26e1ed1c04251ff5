"""How agents play: what they send, how patient they are, and how many of them there are at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from concur_proxy.bench.conversation import EMBEDDED_WORDS, History


@dataclass(frozen=True, slots=True)
class PlayOptions:
    model: str | None = None
    """None: the first that ``/v1/models`` lists."""
    stream: bool = False
    history: History = History.FULL
    words: Sequence[str] = field(default=EMBEDDED_WORDS, repr=False)
    """Words that are one token each to the engine."""
    tokens_per_word: float = 1.0
    """Where there are no such words: what one is on average."""
    concurrency: int | None = None
    """Agents at once; None: all of them."""
    requests_at_once: int | None = None
    """Requests under way, all agents together, as clients limit them themselves; None: no limit."""
    session_header: str | None = "x-session-id"
    """Names each agent's session; None: the server has to recognise it by other means."""
    says_goodbye: bool = False
    """The last turn of each session says that it is the last."""
    ignore_eos: bool = True
    """Have answers exactly as long as the script says, as vLLM and SGLang can."""
    arrivals_per_s: float | None = None
    """Agents start one after another, at random (Poisson); None: all at once, as ``concurrency`` lets them."""
    stop_after_s: float | None = None
    """Count what is answered until then, instead of playing all to the end; sessions that run then are left alone."""
    warm_up_s: float = 0.0
    """What is answered before is played but not counted."""
    timeout_s: float | None = None
    """The client gives a try up after this; None: it is patient."""
    objective_s: float | None = None
    """Time to the first token, or to an answer that is not streamed, within which a turn counts as good."""
    gone_after_s: float | None = None
    """End the run where for so long no connection could be made; None: never."""
    max_tries: int = 100
    """How often a turn is sent before it counts as an error, while the answer is 429 or 503 or no connection."""
    api_key: str | None = None
    seed: int = 0

    @property
    def authorization(self) -> dict[str, str]:
        """The header of requests that name a key."""
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
