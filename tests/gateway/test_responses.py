"""Response ids and their homes."""

from concur_proxy.gateway.responses import ResponseOrigins, id_in_path


def test_ids_are_remembered_and_the_oldest_forgotten():
    origins = ResponseOrigins(capacity=2)
    origins.remember("a", "x")
    origins.remember("b", "y")
    assert origins.find("a") == "x"
    origins.remember("c", "z")
    assert (origins.find("a"), origins.find("b"), origins.find("c")) == ("x", None, "z")
    assert len(origins) == 2
    assert origins.find(None) is None


def test_ids_in_paths():
    assert id_in_path(b"/v1/responses/resp_1/input_items") == "resp_1"
    assert id_in_path(b"/v1/responses/resp_1") == "resp_1"
    assert id_in_path(b"/v1/responses") is None
