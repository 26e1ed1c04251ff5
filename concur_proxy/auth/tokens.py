"""Tokens of an identity provider (JWT as OpenID Connect issues them), checked with its public keys.

Only asymmetric signatures of the algorithms that the operator lists; issuer, audience and expiry must be there and
right. The name of the caller, and the models that it may use, are claims.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from concur_proxy.auth.caller import Caller, is_name

LEEWAY_S = 30.0
"""How far clocks may be apart."""

ODD = (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What comes of whatever a stranger may have written."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say. ``models_claim``: the claim with the models that its caller may use; None: all."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    name_claim: str = "sub"
    models_claim: str | None = None


class TokenVerifier:
    """Implements ``access.Tokens``. ``on_unknown_key`` hears of tokens whose key is not known: it may be a new one."""

    def __init__(self, rules: TokenRules, *, on_unknown_key: Callable[[], None] = lambda: None) -> None:
        self._rules = rules
        self._on_unknown_key = on_unknown_key
        self._keys: dict[str, jwt.PyJWK] = {}

    def replace_keys(self, jwks: Mapping[str, Any]) -> int:
        """Take the keys of a JSON Web Key Set and return how many can be used; others are passed over."""
        listed = jwks.get("keys")
        self._keys = dict(_usable(listed if isinstance(listed, list) else (), self._rules.algorithms))
        return len(self._keys)

    def verify(self, token: str) -> Caller | None:
        """Return who calls, None for what is no token, or not one that is taken here."""
        if token.count(".") != 2:
            return None
        try:
            key = self._key_of(token)
            return None if key is None else self._caller(self._claims(token, key))
        except ODD as error:
            logger.debug("a token is not taken: %s", type(error).__name__)
            return None

    def _key_of(self, token: str) -> jwt.PyJWK | None:
        kid = jwt.get_unverified_header(token).get("kid")
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        key = self._keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            self._on_unknown_key()
        return key

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        rules = self._rules
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(rules.algorithms),
            audience=rules.audience,
            issuer=rules.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud", rules.name_claim]},
        )
        return claims

    def _caller(self, claims: Mapping[str, Any]) -> Caller | None:
        name = claims[self._rules.name_claim]
        if not is_name(name):
            return None
        models = None if self._rules.models_claim is None else _models(claims.get(self._rules.models_claim))
        return Caller(name, f"jwt:{name}", models=models, expires_at=float(claims["exp"]) + LEEWAY_S)


def _models(claim: object) -> list[str]:
    """Return the models that a claim lists, as a list or as words; none where it is missing."""
    if isinstance(claim, str):
        return claim.split()
    return [model for model in claim if isinstance(model, str) and model] if isinstance(claim, list) else []


def _usable(keys: Iterable[Any], algorithms: tuple[str, ...]) -> Iterable[tuple[str, jwt.PyJWK]]:
    for key in keys:
        if not isinstance(key, dict) or key.get("kty") == "oct" or key.get("use", "sig") != "sig":
            continue
        kid = str(key.get("kid", ""))
        try:
            made = jwt.PyJWK.from_dict(key)
        except ODD as error:  # whose words may repeat the key, and files may hold private ones
            logger.warning("the key %.64r of the identity provider cannot be used: %s", kid, type(error).__name__)
            continue
        if made.algorithm_name in algorithms:
            yield kid, made
