"""What holds for all tests."""

from __future__ import annotations

import pytest

from concur_proxy import build


def pytest_collection_modifyitems(items):
    if build() != "compiled":
        return
    skip = pytest.mark.skip(reason="takes a compiled class apart: the sources are tested in its stead")
    for item in items:
        if item.get_closest_marker("sources"):
            item.add_marker(skip)
