"""The account of each turn: what it will need, what the engine counted, and what is to be learned from that."""

from __future__ import annotations

from concur_proxy.core.backend import Backend
from concur_proxy.core.footprint import FootprintEstimator
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import FinishReason, Lease, Outcome, TurnRecord, Usage


class Ledger:
    """``tokens`` before a turn runs, ``close`` when it has ended."""

    __slots__ = ("_estimator",)

    def __init__(self) -> None:
        self._estimator = FootprintEstimator()

    def size(self, turn: Turn) -> int:
        """Return the tokens that a turn will occupy, wherever it runs."""
        return self._estimator.tokens(turn.facts, turn.session)

    def tokens(self, turn: Turn, backend: Backend) -> int:
        """Return the tokens of KV that a turn will occupy on ``backend``, beside the prefix that others share."""
        return backend.own(turn.session, self._estimator.tokens(turn.facts, turn.session))

    def close(
        self,
        turn: Turn,
        outcome: Outcome,
        usage: Usage | None,
        *,
        finish_reason: FinishReason | None,
        first_token_at: float | None,
        now: float,
    ) -> TurnRecord:
        """Take in how a turn has ended and return its record."""
        session, lease, backend = turn.session, turn.lease, turn.backend
        assert lease is not None
        assert backend is not None
        expected = None if usage is None else self._account(turn, session, backend, usage)
        if not turn.is_branch or not session.footprint:
            if usage is not None:
                session.footprint = usage.prompt_tokens + usage.completion_tokens // max(1, turn.facts.choices)
            elif outcome is Outcome.COMPLETED and not session.footprint:
                session.footprint = self._estimator.tokens(turn.facts, session)
        if usage is not None:
            backend.computed += usage.prompt_tokens - (usage.cached_tokens or 0) + usage.completion_tokens
            backend.note_overfull()
            _time(lease, backend, usage, first_token_at, now)
        session.computed_before = backend.computed
        session.turns += 1
        session.finished_at, session.finish_reason = now, finish_reason
        session.left_at = now if outcome is Outcome.COMPLETED else None
        backend.record_at = now
        return TurnRecord(
            backend=lease.backend,
            session=session.key,
            outcome=outcome,
            arrived_at=lease.arrived_at,
            admitted_at=lease.admitted_at,
            finished_at=now,
            first_token_at=first_token_at,
            think_s=turn.think_s,
            usage=usage,
            expected_cached_tokens=expected,
            finish_reason=finish_reason,
        )

    def _account(self, turn: Turn, session: Session, backend: Backend, usage: Usage) -> int | None:
        """Learn from what the engine counted; return the cached tokens that an undisturbed cache would have given.

        None where there is nothing to expect: a first turn, a branch, a context that was never on this backend.
        """
        self._estimator.learn(turn.facts, session, usage)
        cached, key = usage.cached_tokens, session.prefix_key
        if not session.footprint and cached is not None and key is not None and turn.facts.prefix_key == key:
            backend.learn_prefix(key, min(cached, usage.prompt_tokens))
        if not turn.history:
            return None
        expected = self._estimator.expected_cached(session, turn.history, usage.prompt_tokens)
        if cached is not None:
            self._compare(turn, backend, usage, cached, expected)
        return expected

    def _compare(self, turn: Turn, backend: Backend, usage: Usage, cached: int, expected: int) -> None:
        backend.hits_seen += min(cached, expected)
        backend.hits_expected += expected
        undisturbed = turn.was_warm and backend.is_undisturbed(turn)
        if undisturbed:
            self._estimator.learn_reuse(turn.session, turn.history, usage)
        shared = backend.prefixes.of(turn.session.prefix_key)
        if backend.shadow.capacity is None or expected <= shared or backend.is_in_doubt(turn.session):
            return
        found = cached - shared > 0.5 * (expected - shared)
        if found or not undisturbed:  # else it was there, and the client has changed its history
            backend.shadow.correct(believed_warm=turn.was_warm, found_warm=found)


def _time(lease: Lease, backend: Backend, usage: Usage, first_token_at: float | None, now: float) -> None:
    """Learn how long the engine takes to compute a token, where it tells how many it has computed."""
    if usage.cached_tokens is None:
        return
    seconds = (now if first_token_at is None else first_token_at) - lease.admitted_at
    decoded = usage.completion_tokens if first_token_at is None else 1
    backend.prefill.add(seconds, prefilled=max(0, usage.prompt_tokens - usage.cached_tokens), decoded=decoded)
