"""Settings of the Batch API that do not go together with others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from concur_proxy.config import BatchSettings, ServerSettings, Settings
from concur_proxy.config.words import differences


def settings(pattern: str, store: str | None = "batches.db") -> Settings:
    return Settings(server=ServerSettings(extra_paths=(pattern,)), batch=BatchSettings(store=store))


@pytest.mark.parametrize("pattern", ["/v1/files", "/v1/files/*", "/v1/*", "/v1/batches/x", "/v1/batches/x/*"])
def test_no_path_of_the_api_may_be_forwarded_while_it_is_served_here(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"server\.extra_paths"):
        settings(pattern)
    assert settings(pattern, None).server.extra_paths == (pattern,)


@pytest.mark.parametrize("pattern", ["/v1/filesystem", "/v1/custom/*", "/v2/files"])
def test_other_paths_may(pattern: str) -> None:
    assert settings(pattern).server.extra_paths == (pattern,)


def test_the_url_of_a_store_is_never_shown() -> None:
    loaded = Settings(batch=BatchSettings(store="postgresql://user:correct-horse@host/db"))
    assert differences(loaded) == [("batch.store", "********")]
    assert "correct-horse" not in repr(loaded)
