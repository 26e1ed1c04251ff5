"""May this turn run on this backend now, and by which rule (invariant 3)."""

from __future__ import annotations

from concur_proxy.core.backend import Backend
from concur_proxy.core.places import Places
from concur_proxy.core.sessions import Session
from concur_proxy.model import AdmitWhy


def why_active(session: Session, backend: Backend, tokens: int) -> AdmitWhy | None:
    """Return why a session that is idle on ``backend`` may run its next turn of ``tokens``; None: it may not."""
    if backend.fits(backend.charge(tokens) - backend.charge(session.charged)):
        return AdmitWhy.WINDOW
    if len(backend.places) == 1 and not backend.branches:
        return AdmitWhy.OVERSIZE
    if not backend.hard and backend.shadow.is_warm(session):
        return AdmitWhy.WARM
    return None


def has_room(session: Session, backend: Backend, tokens: int) -> bool:
    """Tell whether a turn without a place on ``backend``, or a branch, fits there as things are."""
    return backend.fits(backend.charge_new(session, tokens))


def why_new(session: Session, backend: Backend, tokens: int, places: Places, *, now: float) -> AdmitWhy | None:
    """Return why such a turn may run; None: it may not. Places are reclaimed for it where the engine is starved."""
    charge = backend.charge_new(session, tokens)
    if backend.fits(charge):
        return AdmitWhy.WINDOW
    if not backend.is_empty and (places.policy.mode == "observe" or not places.reclaim(backend, charge, now=now)):
        return None
    if backend.fits(charge):
        return AdmitWhy.WINDOW
    return AdmitWhy.OVERSIZE if backend.is_empty else None


def inherits(session: Session, donor: Session, tokens: int, places: Places) -> bool:
    """Take the idle place of a relative for a session without one, if that makes room for it."""
    backend = donor.place
    if backend is None or session.place is not None or session.running:
        return False
    return places.inherit(donor, session, backend, backend.charge_new(session, tokens))
