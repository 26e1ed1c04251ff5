"""What looks for secrets in logs finds them, and not what is none."""

import logging

import pytest

from concur_proxy.auth.keys import new_key
from tests.auth.test_tokens import GOOD
from tests.conftest import Listener
from tests.secrets import PLANTED


@pytest.mark.parametrize("secret", [new_key(), f"Bearer {GOOD}", "planted-secret-x", "-----BEGIN EC PRIVATE KEY-----"])
def test_secrets_are_found(secret):
    listener = Listener()
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "told: %s", (secret,), None)
    listener.handle(record)
    assert listener.told


def test_a_secret_in_a_traceback_is_found():
    listener = Listener()
    try:
        raise ValueError("planted-secret")
    except ValueError as error:
        record = logging.LogRecord("x", logging.INFO, __file__, 1, "", (), (ValueError, error, error.__traceback__))
    listener.handle(record)
    assert listener.told


@pytest.mark.parametrize("text", ["ck_short", "check_" + "a" * 43, "a session s-1 on 10.0.0.5:8000", "eyJ alone"])
def test_other_words_are_none(text):
    assert not PLANTED.search(text)
