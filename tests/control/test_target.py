import pytest

from concur_proxy.config import BackendSettings
from concur_proxy.control.target import target_of


@pytest.mark.parametrize(
    ("url", "base", "socket"),
    [
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000", None),
        ("https://engine/llm/v1", "https://engine/llm", None),
        ("unix:/run/vllm.sock", "http://localhost", "/run/vllm.sock"),
        ("unix:/run/vllm.sock:/llm/", "http://localhost/llm", "/run/vllm.sock"),
    ],
)
def test_where_the_pages_are(url, base, socket):
    target = target_of(BackendSettings(url=url))
    assert (target.base_url, target.socket_path) == (base, socket)


def test_kind_is_open_until_found_or_set():
    assert target_of(BackendSettings(url="http://a")).kind is None
    assert target_of(BackendSettings(url="http://a", kind="sglang")).kind == "sglang"


def test_what_the_operator_gives_is_taken_over_and_the_key_is_not_shown():
    target = target_of(
        BackendSettings(
            url="http://a", name="big", kv_tokens=5000, api_key="sesame", metrics_url="http://b:9000/metrics"
        )
    )
    assert (target.backend, target.capacity_tokens) == ("big", 5000)
    assert (target.api_key, target.metrics_url) == ("sesame", "http://b:9000/metrics")
    assert "sesame" not in repr(target)
