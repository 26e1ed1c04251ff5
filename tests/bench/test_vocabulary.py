import asyncio

import pytest

from concur_proxy.bench.conversation import EMBEDDED_WORDS
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.vocabulary import COMMON_WORDS, Vocabulary, learn
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.bench.servers import reply, served


def learned(answer):
    async def main():
        async with served(answer) as (url, script):
            return await learn(url, PlayOptions(api_key="k"), "m"), script.seen

    return asyncio.run(main())


def tokenizer(tokens_of, name="prompt"):
    """A server that has one, for texts in the field ``name``."""

    def answer(seen):
        assert seen.path == "/tokenize"
        assert seen.headers["authorization"] == "Bearer k"
        words = seen.json[name].split(" ")[1:]
        return reply({"tokens": [0] * sum(map(tokens_of, words))})

    return answer


@pytest.mark.parametrize("name", ["prompt", "content"])
def test_words_that_are_all_one_token_take_one_question(name):
    found, seen = learned(tokenizer(lambda _: 1, name))
    assert found == Vocabulary(COMMON_WORDS)
    assert len(seen) == 1


def test_words_that_are_more_are_left_out():
    found, seen = learned(tokenizer(lambda word: 1 if len(word) < 5 and word[0] != "z" else 3))
    assert found.words == tuple(word for word in COMMON_WORDS if len(word) < 5)
    assert found.tokens_per_word == 1.0
    assert len(seen) < 4 * len(COMMON_WORDS)


def test_the_embedded_engine_has_words_of_its_own():
    with EngineServer(EngineOptions(port=0, speed=1000, model="m")) as engine:
        found = asyncio.run(learn(engine.url, PlayOptions(), "m"))
    assert found.words == EMBEDDED_WORDS


@pytest.mark.parametrize("tokens_per_word", [1.5, 2.25])
def test_without_a_tokenizer_usage_tells_how_large_words_are(tokens_per_word):
    def answer(seen):
        if seen.path == "/tokenize":
            return reply({"error": {"message": "unknown"}}, 404)
        words = len(seen.json["messages"][0]["content"].split())
        return reply({"choices": [], "usage": {"prompt_tokens": round(20 + tokens_per_word * words)}})

    found, _ = learned(answer)
    assert (found.words, found.told_by) == (COMMON_WORDS, "usage")
    assert found.tokens_per_word == pytest.approx(tokens_per_word)


@pytest.mark.parametrize("answer", [reply({}, 404), reply(b"no json"), reply({"tokens": 5, "usage": {}})])
def test_a_server_that_tells_nothing_is_guessed_at(answer):
    found, _ = learned(lambda _: answer)
    assert found == Vocabulary(COMMON_WORDS, told_by="a guess")


def test_prompts_are_as_long_as_the_script_says_also_where_words_are_not_one_token():
    """The embedded engine counts four letters as a token: these words are longer, and are sent the fewer."""
    words = ("understanding", "international", "administrator")  # with their space three and a half tokens each
    agents = SyntheticAgents(sessions=2, turns=3, first_tokens=600, new_tokens=300, output_tokens=20, think_s=0)
    options = PlayOptions(words=words, tokens_per_word=3.5)
    with EngineServer(EngineOptions(port=0, speed=1000)) as engine:
        report = asyncio.run(play(engine.url, agents.scripts(), options))
    wanted = sum(sum(script.prompts()) for script in agents.scripts())
    assert report.prompt_tokens == pytest.approx(wanted, rel=0.02)
