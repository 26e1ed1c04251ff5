"""An answer is known again from the message in which its client sends it back."""

import json
from random import Random

import pytest

from concur_proxy.core.lineage import talk_of
from concur_proxy.core.lineage.answers import MAX_KEPT, AnswerReader
from concur_proxy.core.lineage.lengths import Lengths
from concur_proxy.core.usage import CuttingReader, PassiveReader
from concur_proxy.model import Usage
from tests.core.lineage.agents import APIS, Answered, Anthropic, Chat, Items, Responses, events, output

MESSAGE_APIS = [api for name, api in APIS.items() if name not in ("prompts", "responses")]


def read(data, *, streamed, size=64):
    reader = AnswerReader(PassiveReader(streamed=streamed), streamed=streamed)
    out = b"".join(reader.feed(data[start : start + size]) for start in range(0, len(data), size)) + reader.finish()
    assert out == data, "what passes is not changed"
    return reader.answer


def sent_back(api, answer):
    """What is known of the answer in the next request."""
    client = api("task")
    talk = talk_of(client.fields())
    index = len(talk.points(7, Lengths(1)))
    client.take(answer)
    client.say("go on")
    return talk_of(client.fields()).answer(index)


@pytest.mark.parametrize("api", MESSAGE_APIS)
@pytest.mark.parametrize("calls_tool", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_a_stream(api, calls_tool, size):
    answer, other = (Answered(Random(seed), 3000, calls_tool) for seed in (1, 2))
    seen = read(api("task").wire(answer), streamed=True, size=size)
    assert seen.likeness(sent_back(api, answer)) > 0
    assert seen.likeness(sent_back(api, other)) == 0


WHOLE = {
    Chat: lambda answer: {
        "id": "chatcmpl-1",
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": answer.text,
                    "tool_calls": [{"id": answer.call, "function": {"name": "run"}}] if answer.call else [],
                }
            }
        ],
    },
    Anthropic: lambda answer: {
        "role": "assistant",
        "content": [
            {"type": "text", "text": answer.text},
            *([{"type": "tool_use", "id": answer.call, "name": "run", "input": {}}] if answer.call else []),
        ],
    },
    Items: lambda answer: {"id": answer.response_id, "output": output(answer)},
}


@pytest.mark.parametrize("api", MESSAGE_APIS)
@pytest.mark.parametrize("calls_tool", [True, False])
def test_a_whole_answer(api, calls_tool):
    answer, other = (Answered(Random(seed), 3000, calls_tool) for seed in (1, 2))
    seen = read(json.dumps(WHOLE[api](answer)).encode(), streamed=False)
    assert seen.likeness(sent_back(api, answer)) > 0
    assert seen.likeness(sent_back(api, other)) == 0


def test_space_and_reasoning_around_a_text_do_not_count():
    told = read(events([{"choices": [{"delta": {"content": "<think>Hm.</think>\n\nYes. \n"}}]}]), streamed=True)
    assert told.text == read(events([{"choices": [{"delta": {"content": "Yes."}}]}]), streamed=True).text


def test_a_plain_text_is_known_by_how_it_begins():
    text = "a plain text that is long enough to be known by its beginning alone"
    whole = read(json.dumps({"choices": [{"text": text}]}).encode(), streamed=False)
    streamed = read(events({"choices": [{"text": word}]} for word in text.split(" ")), streamed=True)
    assert whole.head != 0
    assert whole.head != streamed.head, "the words without their spaces are another text"
    pieces = [text[start : start + 5] for start in range(0, len(text), 5)]
    assert read(events({"choices": [{"text": piece}]} for piece in pieces), streamed=True) == whole


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b"data: {\n\n",
        b"data: [DONE]\n\n",
        b'{"choices": [7]}',
        b'data: {"choices": {}}\n\n',
        b"\xff\n",
    ],
)
def test_what_is_no_answer_tells_nothing(data, streamed):
    assert read(data, streamed=streamed) is None


@pytest.mark.parametrize("streamed", [True, False])
def test_a_very_long_answer_is_not_kept(streamed):
    chunk = events([{"choices": [{"delta": {"content": "word " * 1000}}]}])
    reader = AnswerReader(PassiveReader(streamed=streamed), streamed=streamed)
    for _ in range(2 * MAX_KEPT // len(chunk)):
        reader.feed(chunk)
    assert reader.answer is None
    assert len(reader._rest) + sum(map(len, reader._texts)) <= MAX_KEPT


def test_what_the_other_reader_tells_is_told():
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    reader = AnswerReader(CuttingReader(), streamed=True)
    data = events(
        [{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
    )
    assert reader.feed(data) + reader.finish() == data.replace(events([{"choices": [], "usage": usage}])[:-14], b"")
    assert reader.usage == Usage(5, 2)
    assert reader.finish_reason.value == "stop"
    assert reader.saw_token
    assert reader.response_id is None


def test_the_responses_api_tells_its_id():
    answer = Answered(Random(1), 3000, calls_tool=True)
    reader = AnswerReader(PassiveReader(streamed=True), streamed=True)
    reader.feed(Responses("task").wire(answer))
    assert reader.response_id == answer.response_id
