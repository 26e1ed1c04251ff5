"""Tokens of an identity provider: good ones, and fifty that somebody might try instead."""

import base64
import hashlib
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from concur_proxy.auth.tokens import TokenRules, TokenVerifier

ISSUER, AUDIENCE = "https://login.example.test", "concur-proxy"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
NOW = int(time.time())
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "team-a", "exp": NOW + 3600, "iat": NOW}


def public_pem(key):
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def jwk(key, algorithm, kid, **more):
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "alg": algorithm, **more}


JWKS = {"keys": [jwk(RSA, "RS256", "r"), jwk(EC, "ES256", "e", use="sig")]}


def verifier(jwks=JWKS, **changes):
    rules = {"issuer": ISSUER, "audience": AUDIENCE, "algorithms": ("RS256", "ES256")}
    made = TokenVerifier(TokenRules(**{**rules, **changes}))
    made.replace_keys(jwks)
    return made


def token(claims=None, *, key=RSA, algorithm="RS256", kid="r", headers=None, without=(), **changes):
    said = {name: value for name, value in {**(claims or CLAIMS), **changes}.items() if name not in without}
    told = {} if kid is None else {"kid": kid}
    return jwt.encode(said, key, algorithm=algorithm, headers={**told, **(headers or {})})


def part(data):
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hand(header, claims, signature=b""):
    return f"{part(header)}.{part(claims)}.{part(signature) if signature else ''}"


def hs256(secret, header=None):
    signed = f"{part(header or {'alg': 'HS256', 'typ': 'JWT', 'kid': 'r'})}.{part(CLAIMS)}"
    return f"{signed}.{part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def changed(position, value):
    parts = GOOD.split(".")
    parts[position] = value
    return ".".join(parts)


GOOD = token()
HEAD, BODY, SIGNATURE = GOOD.split(".")
OTHER_BODY = part({**CLAIMS, "sub": "admin"})

MALFORMED = {
    "nothing": "",
    "only dots": "..",
    "one dot": f"{HEAD}.{BODY}",
    "three dots": f"{GOOD}.x",
    "text": "hello.there.world",
    "spaces": " . . ",
    "zero bytes": "\0.\0.\0",
    "not ASCII": "ключ.ключ.ключ",
    "a lone surrogate": "\ud800.\ud800.\ud800",
    "header is no base64": changed(0, "!!!!"),
    "header is no JSON": changed(0, part(b"{")),
    "header is a list": changed(0, part([])),
    "header is a number": changed(0, part(1)),
    "header is null": changed(0, part(None)),
    "header is empty": changed(0, ""),
    "header nests for ever": changed(0, part(b"[" * 9000)),
    "no algorithm": by_hand({"kid": "r"}, CLAIMS, b"x"),
    "algorithm none": by_hand({"alg": "none", "kid": "r"}, CLAIMS),
    "algorithm None": by_hand({"alg": "None", "kid": "r"}, CLAIMS),
    "algorithm none with a signature": by_hand({"alg": "none", "kid": "r"}, CLAIMS, b"x"),
    "algorithm null": by_hand({"alg": None, "kid": "r"}, CLAIMS, b"x"),
    "algorithm is a list": by_hand({"alg": ["RS256"], "kid": "r"}, CLAIMS, b"x"),
    "algorithm that nobody knows": by_hand({"alg": "XX999", "kid": "r"}, CLAIMS, b"x"),
    "HMAC with the public key": hs256(public_pem(RSA)),
    "HMAC with an empty secret": hs256(b""),
    "HMAC with the key set": hs256(json.dumps(JWKS).encode()),
    "algorithm of another key": by_hand({"alg": "ES256", "kid": "r"}, CLAIMS, b"x" * 64),
    "algorithm that is not listed": token(algorithm="RS512"),
    "padding that is not listed": token(algorithm="PS256"),
    "signed by a stranger": token(key=STRANGER),
    "a key that nobody knows": token(key=STRANGER, kid="s"),
    "no name of a key among several": token(kid=None),
    "name of a key is a list": by_hand({"alg": "RS256", "kid": ["r"]}, CLAIMS, b"x"),
    "name of a key is an object": by_hand({"alg": "RS256", "kid": {"r": 1}}, CLAIMS, b"x"),
    "name of a key is a number": by_hand({"alg": "RS256", "kid": 0}, CLAIMS, b"x"),
    "name of a key is a path": token(key=STRANGER, kid="../../dev/null"),
    "brings its own key": token(key=STRANGER, kid=None, headers={"jwk": jwk(STRANGER, "RS256", "r")}),
    "names where its key is": token(key=STRANGER, kid="s", headers={"jku": "http://127.0.0.1:9/jwks"}),
    "brings its own certificate": token(key=STRANGER, kid="s", headers={"x5c": ["MII="]}),
    "critical header that nobody knows": token(headers={"crit": ["exp"], "exp": 1}),
    "payload apart": token(headers={"b64": False, "crit": ["b64"]}).replace(f".{BODY}.", ".."),
    "claims exchanged": changed(1, OTHER_BODY),
    "claims are no JSON": f"{HEAD}.{part(b'xx')}.{SIGNATURE}",
    "no signature": f"{HEAD}.{BODY}.",
    "signature cut": GOOD[:-8],
    "signature of nulls": changed(2, part(b"\0" * 256)),
    "signature of zeros, on the curve": by_hand({"alg": "ES256", "kid": "e"}, CLAIMS, b"\0" * 64),
    "expired": token(exp=NOW - 3600),
    "never expires": token(without=["exp"]),
    "expiry is a text": token(exp="tomorrow"),
    "expiry is not finite": by_hand({"alg": "RS256", "kid": "r"}, {**CLAIMS, "exp": 1e400}, b"x"),
    "not valid yet": token(nbf=NOW + 3600),
    "issued in the future": token(iat=NOW + 3600),
    "another issuer": token(iss="https://login.example.test.evil.test"),
    "issuer with a slash": token(iss=ISSUER + "/"),
    "no issuer": token(without=["iss"]),
    "another audience": token(aud="billing"),
    "audience among none": token(aud=[]),
    "no audience": token(without=["aud"]),
    "no name": token(without=["sub"]),
    "empty name": token(sub=""),
    "name with a line break": token(sub="a\nb"),
    "endless name": token(sub="a" * 300),
}


def test_a_good_token_names_its_caller():
    for made in (GOOD, token(key=EC, algorithm="ES256", kid="e"), token(aud=["x", AUDIENCE])):
        caller = verifier().verify(made)
        assert (caller.name, caller.namespace) == ("team-a", "jwt:team-a")
        assert NOW + 3600 <= caller.expires_at <= NOW + 3700
        assert caller.may_use(None)


def test_there_are_fifty():
    assert len(MALFORMED) >= 50


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_a_good_token_opens_nothing(name):
    assert verifier().verify(MALFORMED[name]) is None


@pytest.mark.parametrize("without", ["issuer", "audience", "key"])
def test_each_rule_is_what_refuses(without):
    """The same tokens pass where the rule is another one: none of them is refused for a reason that is not meant."""
    other = {"issuer": {"issuer": "https://other.test"}, "audience": {"audience": "billing"}, "key": {}}[without]
    jwks = JWKS if without != "key" else {"keys": [jwk(STRANGER, "RS256", "r")]}
    made = {"issuer": token(iss="https://other.test"), "audience": token(aud="billing"), "key": token(key=STRANGER)}
    assert verifier(jwks, **other).verify(made[without]) is not None
    assert verifier().verify(made[without]) is None


def test_one_key_needs_no_name():
    assert verifier({"keys": JWKS["keys"][:1]}).verify(token(kid=None)) is not None


def test_an_unknown_key_is_told_and_no_other_fault_is():
    told = []
    made = TokenVerifier(TokenRules(ISSUER, AUDIENCE, ("RS256",)), on_unknown_key=lambda: told.append(1))
    assert made.verify(GOOD) is None
    made.replace_keys(JWKS)
    assert made.verify(GOOD) is not None
    made.verify(token(exp=1))
    made.verify("hello.there.world")
    assert len(told) == 1


def test_keys_that_cannot_be_used_are_passed_over():
    odd = [None, 1, {}, {"kty": "oct", "k": part(b"secret"), "kid": "o", "alg": "HS256"}, {"kty": "RSA", "kid": "r"}]
    encrypting = jwk(RSA, "RS256", "r", use="enc")
    made = TokenVerifier(TokenRules(ISSUER, AUDIENCE, ("RS256", "HS256")))
    assert made.replace_keys({"keys": [*odd, encrypting]}) == 0
    assert made.replace_keys({"keys": [*odd, *JWKS["keys"]]}) == 1  # the other algorithm is not listed
    assert made.replace_keys({}) == 0


@pytest.mark.parametrize("listed", [None, 5, True, "keys", {"a": 1}, [[]], [None]])
def test_a_set_of_keys_that_is_none_has_none(listed):
    assert verifier({"keys": listed}).verify(GOOD) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in ("kty", "n", "e", "alg", "d", "x5c")
        for value in (None, 1, -1, [], {}, "", "!", "\ud800")
    ],
)
def test_a_key_that_cannot_be_used_is_told_by_its_name_and_never_repeated(name, value, caplog):
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA)) | {"kid": "r" * 1000, name: value}
    verifier({"keys": [private]})
    for secret in (private["p"], private["q"], "rrr" * 30):
        assert secret not in caplog.text


def test_claims_of_the_operators_choice_name_caller_and_models():
    made = verifier(name_claim="team", models_claim="models")
    assert made.verify(token()) is None
    some = made.verify(token(team="x", models=["m1", "llama*"]))
    words = made.verify(token(team="x", models="m1 llama*"))
    none = made.verify(token(team="x"))
    assert [caller.may_use("m1") for caller in (some, words, none)] == [True, True, False]
    assert [caller.may_use("llama-3") for caller in (some, words, none)] == [True, True, False]
    assert not any(caller.may_use("m2") for caller in (some, words, none))
    assert made.verify(token(team="x", models={"m1": 1})).may_use("m1") is False
