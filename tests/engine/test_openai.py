"""The OpenAI client on real vLLM; what works directly works the same through the proxy."""

import openai
import pytest
from openai import OpenAI

from tests.clients.openai_behaviour import OpenAIBehaviour, client
from tests.clients.stack import Stack

__all__ = ["client"]

pytestmark = pytest.mark.engine


class TestVllm(OpenAIBehaviour):
    def test_responses(self, client: OpenAI, stack: Stack) -> None:
        answer = client.responses.create(model=stack.model, input="Say something.", max_output_tokens=8)
        assert answer.object == "response"
        assert answer.output_text
        assert answer.usage is not None
        assert answer.usage.output_tokens == 8

    def test_streamed_responses(self, client: OpenAI, stack: Stack) -> None:
        with client.responses.create(
            model=stack.model, input="Say something.", max_output_tokens=8, stream=True
        ) as stream:
            events = list(stream)
        assert events[0].type == "response.created"
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        last = events[-1]
        assert last.type in {"response.completed", "response.incomplete"}
        assert last.response.output_text == text != ""

    def test_leaving_a_streamed_response_frees_the_engine(self, client: OpenAI, stack: Stack) -> None:
        with client.responses.create(
            model=stack.model, input="Go on.", max_output_tokens=6000, stream=True, extra_body={"ignore_eos": True}
        ) as stream:
            next(event for event in stream if event.type == "response.output_text.delta")
            stack.wait_until_running(1)
        stack.wait_until_running(0)

    def test_embeddings_that_the_engine_lacks(self, client: OpenAI, stack: Stack) -> None:
        with pytest.raises(openai.NotFoundError) as caught:
            client.embeddings.create(model=stack.model, input="text")
        assert caught.value.response.json() == {"detail": "Not Found"}
