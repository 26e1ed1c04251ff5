import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.control.ports import Reply
from concur_proxy.control.reading import Found, Problem, document, sources
from concur_proxy.control.target import EngineTarget
from concur_proxy.model import BackendId
from tests.control.engines import METRICS
from tests.engines.pages import SGLANG, VLLM


def target(**fields):
    return EngineTarget(BackendId("a"), "http://a", **fields)


def read(text, *, status=200, **fields):
    of = target(**fields)
    return sources(of)[0].result(Reply(status, text), of, at=1.0)


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({}, ["/metrics", "/prometheus/metrics", "/v1/loads?include=core"]),
        ({"kind": "vllm"}, ["/metrics"]),
        ({"kind": "sglang"}, ["/metrics", "/v1/loads?include=core"]),
        ({"kind": "tensorrt"}, ["/prometheus/metrics"]),
        ({"kind": "none"}, []),
        ({"metrics_url": "http://b:9/m"}, ["http://b:9/m"]),
        ({"kind": "sglang", "metrics_url": "http://b:9/m"}, ["http://b:9/m"]),
    ],
)
def test_pages_to_try(fields, paths):
    assert [source.path for source in sources(target(**fields))] == paths


@pytest.mark.parametrize(("text", "kind"), [(VLLM, "vllm"), (SGLANG, "sglang")])
def test_the_kind_is_found(text, kind):
    result = read(text)
    assert isinstance(result, Found)
    assert (result.kind, result.sample.at, result.sample.capacity_tokens) == (kind, 1.0, 16384)


@pytest.mark.parametrize(
    ("text", "status", "fields", "words"),
    [
        ("", 404, {}, "/metrics is missing (404)"),
        ("", 404, {"kind": "sglang"}, "/metrics is missing (404): start SGLang with --enable-metrics"),
        ("", 401, {}, "/metrics needs authorization (401): set the backend's api_key"),
        ("", 403, {"api_key": "x"}, "/metrics needs authorization (403): its api_key is refused"),
        ("", 307, {}, "/metrics redirects (307): set the backend's metrics_url"),
        ("", 500, {}, "/metrics answers 500"),
        ("<html></html>", 200, {}, "HTML page at /metrics"),
        ('{"a": 1}', 200, {}, "JSON document at /metrics"),
        ("", 200, {}, "empty page at /metrics"),
        ("python_info 1\n", 200, {}, "no known engine series at /metrics"),
        (
            "python_info 1\n",
            200,
            {"kind": "vllm"},
            "no vllm series at /metrics: start vLLM without --disable-log-stats",
        ),
        (METRICS % (1, 1), 200, {"kind": "sglang"}, "/metrics has series of vllm, not of sglang"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(text, status, fields, words):
    assert read(text, status=status, **fields) == Problem(words)


def test_loads_of_sglang():
    of = target(kind="sglang")
    loads = sources(of)[1]
    good = loads.result(Reply(200, '{"loads": [{"num_running_reqs": 2}]}'), of, at=3.0)
    assert isinstance(good, Found)
    assert good.sample.running == 2
    wrong = loads.result(Reply(200, "<html>"), of, at=3.0)
    assert wrong == Problem("no load figures at /v1/loads?include=core")


@given(st.text(max_size=200), st.integers(100, 599), st.sampled_from([None, "vllm", "sglang", "tensorrt"]))
def test_any_answer_gives_a_sample_or_words(text, status, kind):
    of = target(kind=kind)
    for source in sources(of):
        assert isinstance(source.result(Reply(status, text), of, at=0.0), Found | Problem)


def test_a_document_that_is_none():
    assert document("{") is None
    assert document("[" * 100_000) is None


def test_half_a_character_is_no_text():
    assert document(r'{"id": "\ud83d\ude00"}') == {"id": "\N{GRINNING FACE}"}
    assert document(r'{"id": "\ud83d"}') is None
