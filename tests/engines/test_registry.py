import pytest

from concur_proxy.engines.registry import ENGINES, detect
from tests.engines.pages import SGLANG, VLLM, page


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (VLLM, "vllm"),
        (SGLANG, "sglang"),
        ("sglang_num_running_reqs 1\n", "sglang"),
        ("trtllm_num_requests_running 1\n", "tensorrt"),
        ("lmdeploy:num_requests_running 1\n", "lmdeploy"),
        ("llamacpp:requests_processing 1\n", "llamacpp"),
        ("tgi_queue_size 1\n", "tgi"),
        ("python_info 1\nprocess_cpu_seconds_total 3\n", None),
    ],
    ids=["vllm", "sglang", "rewritten names", "tensorrt", "lmdeploy", "llamacpp", "tgi", "not an engine"],
)
def test_kind_is_told_by_the_names_of_the_series(text, kind):
    assert detect(page(text)) == kind


def test_every_kind_is_registered_under_its_own_name():
    assert all(engine.kind == kind for kind, engine in ENGINES.items())


@pytest.mark.parametrize("kind", [kind for kind, engine in ENGINES.items() if engine.read])
def test_a_page_of_something_else_gives_a_sample_of_unknowns(kind):
    sample = ENGINES[kind].read(page("python_info 1\n"), 3.0)
    assert sample == type(sample)(at=3.0)
