"""The OpenAI client on the embedded engine; what works directly works the same through the proxy."""

import openai
import pytest
from openai import OpenAI

from tests.clients.openai_behaviour import HELLO, LONG, OpenAIBehaviour, client
from tests.clients.stack import ProxyProcess, Stack

__all__ = ["client"]


class TestEmbeddedEngine(OpenAIBehaviour):
    @pytest.mark.parametrize("encoding", ["float", "base64"])
    def test_embeddings(self, client: OpenAI, stack: Stack, encoding: str) -> None:
        answer = client.embeddings.create(model=stack.model, input=["one", "two"], encoding_format=encoding)  # type: ignore[arg-type]
        assert [item.index for item in answer.data] == [0, 1]
        assert answer.data[0].embedding != answer.data[1].embedding

    def test_an_address_that_the_engine_lacks(self, client: OpenAI) -> None:
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="m", input="hello")


def test_the_proxys_headers_name_request_session_and_backend(embedded_engine: str, embedded_proxy: str) -> None:
    with OpenAI(base_url=f"{embedded_proxy}/v1", api_key="none", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="embedded", messages=HELLO, max_tokens=2, extra_headers={"X-Session-ID": "agent-17"}
        )
    assert raw.headers["x-concur-session"] == "agent-17"
    assert raw.headers["x-concur-backend"] == embedded_engine.removeprefix("http://")
    assert raw.headers["x-concur-queued-ms"].isdecimal()
    assert raw.request_id == raw.headers["x-request-id"] != ""


FULL = {"CONCUR_GATE__RETRY_AFTER_S": "0.05"}


@pytest.mark.parametrize(
    ("env", "status"),
    [({"CONCUR_GATE__MAX_HELD": "0"}, 429), ({"CONCUR_GATE__MAX_WAIT_S": "0.1"}, 503)],
    ids=["the queue is full", "the wait was too long"],
)
def test_refused_turns_are_tried_again_when_the_proxy_says_so(
    embedded_engine: str, env: dict[str, str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A place for one: the second client is refused until the first one leaves, and waits as long as it was told."""
    refusals = []
    with ProxyProcess([embedded_engine], flags=["--window", "1"], env=FULL | env) as proxy:
        base_url = f"{proxy.url}/v1"
        with (
            OpenAI(base_url=base_url, api_key="none", max_retries=0) as first,
            OpenAI(base_url=base_url, api_key="none", max_retries=20) as second,
            caplog.at_level("INFO", logger="openai._base_client"),
        ):
            stream = first.chat.completions.create(model="embedded", messages=HELLO, stream=True, **LONG)
            next(iter(stream))

            def refused(response: object) -> None:
                """The first refusal is when the first client leaves."""
                if (code := response.status_code) != 200:  # type: ignore[attr-defined]
                    refusals.append((code, response.headers["retry-after-ms"], response.headers["x-should-retry"]))  # type: ignore[attr-defined]
                    stream.close()

            second._client.event_hooks["response"].append(refused)
            answer = second.chat.completions.create(model="embedded", messages=HELLO, max_tokens=2)
    assert answer.choices[0].message.content
    assert set(refusals) == {(status, "50", "true")}
    waits = [record.args[0] for record in caplog.records if record.msg.startswith("Retrying request in")]  # type: ignore[index]
    assert waits == [0.05] * len(refusals)


def test_a_held_turn_is_refused_before_its_client_loses_patience(embedded_engine: str) -> None:
    with (
        ProxyProcess([embedded_engine], flags=["--window", "1"]) as proxy,
        OpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.create(model="embedded", messages=HELLO, stream=True, **LONG) as stream,
    ):
        next(iter(stream))
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="embedded", messages=HELLO, timeout=1.0)
        assert caught.value.status_code == 503
        assert caught.value.code == "queue_timeout"
