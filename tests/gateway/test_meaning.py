"""Batch turns that wait are grouped by what they mean: topics, the thread that finds them out, and the way there."""

import asyncio
import importlib
import json
import threading

import numpy as np
import pytest

from concur_proxy.config import BatchSettings
from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.errors import ConfigError
from concur_proxy.gateway import meaning
from concur_proxy.gateway.meaning import ALIKE, AT_ONCE, MAX_TOPICS, Grouper, Topics, first_text
from concur_proxy.runtime.grouping import grouper_of
from tests.gateway.harness import Engine, Proxy, ok, run, until

WIDTH = 512


def embed(texts):
    """Count words, each in a column of its own by its letters: the same words point the same way."""
    vectors = np.zeros((len(texts), WIDTH), np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            vectors[row, sum(ord(letter) * 31**place for place, letter in enumerate(word)) % WIDTH] += 1.0
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def chat(text, **fields):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields}).encode()


# topics


def test_texts_that_point_the_same_way_are_of_one_topic():
    topics = Topics()
    texts = ["the cat sat on the mat", "stock prices fell", "on the mat the cat sat", "prices fell stock"]
    found = [topics.of(vector) for vector in embed(texts)]
    assert found[0] == found[2] != found[1] == found[3]


@pytest.mark.parametrize(("cosine", "same"), [(ALIKE + 0.01, True), (ALIKE - 0.01, False)])
def test_how_alike_is_alike(cosine, same):
    topics = Topics()
    one, other = np.array([1, 0], np.float32), np.array([cosine, np.sqrt(1 - cosine**2)], np.float32)
    assert (topics.of(one) == topics.of(other)) is same


def test_topics_are_bounded_and_the_one_unseen_for_longest_makes_room():
    topics, vectors = Topics(), np.eye(3 * MAX_TOPICS, dtype=np.float32)
    first = topics.of(vectors[0])
    for vector in vectors[1:]:
        topics.of(vector)
        assert topics.of(vectors[0]) == first
    assert len(topics) == MAX_TOPICS
    assert topics.of(vectors[1]) != first + 1, "it has been forgotten, and its number is not used again"


# texts


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (chat("hi"), "hi"),
        (
            b'{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]}]}',
            "hi",
        ),
        (b'{"messages":[{"role":"user","content":[{"type":"image_url"},{"type":"text","text":"hi"}]}]}', "hi"),
        (b'{"input":"hi"}', "hi"),
        (b'{"input":[{"role":"user","content":"hi"}]}', "hi"),
        (b'{"prompt":"hi"}', "hi"),
        (b'{"prompt":[1,2]}', ""),
        (b'{"messages":[{"role":"assistant","content":"no"}]}', ""),
        (b'{"messages":[7,{"role":"user"}]}', ""),
        (b'{"messages":{"role":"user"}}', ""),
        (b"[]", ""),
        (b"nonsense", ""),
        (b"{}", ""),
        (chat("x" * 10_000), "x" * meaning.MAX_TEXT),
    ],
)
def test_the_first_user_message(body, text):
    assert first_text(body) == text


# the thread


class Line:
    """Tickets that wait, and what was found out about them."""

    def __init__(self, *tickets):
        self.tickets = set(tickets)
        self.topics = {}

    def grouper(self, embed):
        return Grouper(embed, is_held=self.tickets.__contains__, group=self.topics.__setitem__)


def test_what_waits_gets_its_topic_and_what_has_gone_is_not_looked_at():
    seen = []

    def watched(texts):
        seen.extend(texts)
        assert threading.current_thread() is not threading.main_thread()
        return embed(texts)

    async def scene():
        line = Line(1, 2, 4)
        grouper = line.grouper(watched)
        for ticket, text in ((1, "a b"), (2, "c d"), (3, "gone"), (4, "b a"), (5, "")):
            grouper.held(ticket, chat(text))
        await grouper.idle()
        assert line.topics[1] == line.topics[4] != line.topics[2]
        assert set(line.topics) == {1, 2, 4}
        assert seen == ["a b", "c d", "b a"]
        grouper.held(2, chat("again"))
        await grouper.close()

    asyncio.run(scene())


def test_many_are_looked_at_together_while_the_model_is_busy():
    sizes, go = [], threading.Event()

    def slow(texts):
        go.wait()
        sizes.append(len(texts))
        return embed(texts)

    async def scene():
        count = 3 * AT_ONCE + 1
        line = Line(*range(count))
        grouper = line.grouper(slow)
        for ticket in range(count):
            grouper.held(ticket, chat(f"text {ticket}"))
        await asyncio.sleep(0)
        go.set()
        await grouper.idle()
        assert sizes == [AT_ONCE, AT_ONCE, AT_ONCE, 1]
        assert len(line.topics) == count
        await grouper.close()

    asyncio.run(scene())


def test_a_model_that_fails_leaves_turns_where_they_are_and_is_asked_again(caplog):
    failing = [True]

    def moody(texts):
        if failing.pop() if failing else False:
            raise RuntimeError("out of memory")
        return embed(texts)

    async def scene():
        line = Line(1, 2)
        grouper = line.grouper(moody)
        grouper.held(1, chat("one"))
        await grouper.idle()
        assert line.topics == {}
        assert "out of memory" in caplog.text
        grouper.held(2, chat("two"))
        await grouper.idle()
        assert set(line.topics) == {2}
        await grouper.close()

    asyncio.run(scene())


def test_requests_that_are_too_large_and_lines_that_are_too_long_stay_without(monkeypatch):
    monkeypatch.setattr(meaning, "MAX_BODY", 100)
    monkeypatch.setattr(meaning, "MAX_WAITING", 2)

    async def scene():
        line = Line(*range(10))
        grouper = line.grouper(embed)
        grouper.held(0, chat("x" * 100))
        for ticket in range(1, 5):
            grouper.held(ticket, chat("x"))
        await grouper.idle()
        assert set(line.topics) == {1, 2}
        await grouper.close()

    asyncio.run(scene())


# the way there


def test_batch_turns_that_wait_go_next_to_those_about_the_same():
    """Whoever asks now is not looked at, and goes first."""

    async def main():
        free = asyncio.Event()

        async def slow(seen, wire):
            await free.wait()
            await wire.send(ok())

        policy = GatePolicy(order="lanes", hot_share=0.0)
        async with Engine(slow) as engine, Proxy((engine,), window=1, policy=policy) as proxy:
            looked = []
            grouper = Grouper(
                lambda texts: looked.extend(texts) or embed(texts), is_held=proxy.gate.is_held, group=proxy.gate.group
            )
            proxy.handler.grouping = grouper
            asking = [asyncio.create_task(proxy.ask(chat("runs", priority=1)))]
            await until(lambda: len(engine.seen) == 1)
            texts = [
                f"{topic} {word}"
                for word in ("mat", "dog")
                for topic in ("the cat sat on a", "stock prices fell a lot")
            ]
            for held, text in enumerate(texts * 2, 1):
                asking.append(asyncio.create_task(proxy.ask(chat(text, priority=1))))
                await until(lambda held=held: proxy.dispatcher.snapshot().held == held)
            asking.append(asyncio.create_task(proxy.ask(chat("now"))))
            await until(lambda: proxy.dispatcher.snapshot().held == len(texts) * 2 + 1)
            await grouper.idle()
            assert sorted(looked) == sorted(texts * 2)
            free.set()
            assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
            went = [first_text(seen.body) for seen in engine.seen]
            assert went[:2] == ["runs", "now"]
            topics = [text.split()[0] for text in went[2:]]
            assert topics == ["the"] * 4 + ["stock"] * 4
            await grouper.close()

    run(main())


# settings and the library


def test_off_by_default_and_a_model_that_is_not_there_is_said_so(tmp_path):
    gate = Gate(GatePolicy())
    assert grouper_of(BatchSettings(), gate) is None
    with pytest.raises(ConfigError, match=r"batch\.meaning_model"):
        grouper_of(BatchSettings(meaning_model=str(tmp_path / "none")), gate)


def test_a_model_of_the_library_itself(tmp_path):
    """One that is made here: hubs are not for tests. Its words have directions of chance."""
    library = pytest.importorskip("sentence_transformers", reason="the extra meaning brings PyTorch, which CI has not")
    tokenizers = pytest.importorskip("tokenizers")
    words = {
        word: number
        for number, word in enumerate(["[UNK]", *["the", "cat", "sat", "on", "mat", "stock", "prices", "fell"]])
    }
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    weights = np.random.default_rng(1).normal(size=(len(words), 64)).astype(np.float32)
    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    made = modules.StaticEmbedding(tokenizer, embedding_weights=weights)
    library.SentenceTransformer(modules=[made], device="cpu").save(str(tmp_path))
    topics = Topics()
    vectors = meaning.load(str(tmp_path))(["the cat sat on the mat", "stock prices fell", "on the mat the cat sat"])
    found = [topics.of(vector) for vector in vectors]
    assert found[0] == found[2] != found[1]
