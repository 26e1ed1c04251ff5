"""What holds for all tests."""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, settings

from concur_proxy import build
from tests.secrets import PLANTED

# How fast an example is made or played says something about the machine, and nothing about what is tested.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items):
    if build() != "compiled":
        return
    skip = pytest.mark.skip(reason="takes a compiled class apart: the sources are tested in its stead")
    for item in items:
        if item.get_closest_marker("sources"):
            item.add_marker(skip)


class Listener(logging.Handler):
    """Hears every line that is logged, and keeps those that hold a secret."""

    def __init__(self):
        super().__init__()
        self.told = []

    def emit(self, record):
        line = self.format(record)
        if PLANTED.search(line):
            self.told.append(f"{record.name}: {line}")


@pytest.fixture(scope="session", autouse=True)
def no_secret_is_ever_logged():
    """Secrets that tests plant turn up in no line of the whole run."""
    listener = Listener()
    logging.getLogger().addHandler(listener)
    yield
    logging.getLogger().removeHandler(listener)
    assert not listener.told
