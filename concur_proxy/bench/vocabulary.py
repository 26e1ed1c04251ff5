"""Finds words that are one token each to the engine at hand, so that prompts are as long as a script says.

An engine that tells tokens (``/tokenize`` of vLLM, SGLang and llama.cpp's server) is asked for them. Of one that does
not, two short questions tell by their usage how many tokens a word is on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from concur_proxy.bench.client import Client
from concur_proxy.bench.conversation import EMBEDDED_WORDS
from concur_proxy.bench.options import PlayOptions

_NOUNS = """
time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother
area money story fact month lot right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city community name president team minute idea body information
back parent face level office door health person art war history party result change morning reason research girl
guy moment air teacher force education foot boy age policy music market sense nation plan college interest death
experience effect class control field development role effort rate heart drug show leader light voice wife police
mind price report decision son view relationship town road arm difference value building action season society
"""
COMMON_WORDS = tuple(_NOUNS.split())
"""Nouns that every tokenizer trained on English has as one token behind a space."""
FEWEST_WORDS = 50
"""With fewer texts would repeat themselves, and share beginnings that no script asks for."""
PROBES = (40, 240)
"""Words of the two questions."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    words: Sequence[str]
    tokens_per_word: float = 1.0
    told_by: str = "the tokenizer"
    """How it was found out."""


async def learn(url: str, options: PlayOptions, model: str) -> Vocabulary:
    """Ask the engine at ``url``. An engine that tells nothing is taken for one to which a word is a token."""
    client = Client(url)
    try:
        for candidates in (COMMON_WORDS, EMBEDDED_WORDS):
            if await _count(client, options, model, candidates) == len(candidates):
                return Vocabulary(candidates)
        found = await _single(client, options, model, COMMON_WORDS)
        if len(found) >= FEWEST_WORDS:
            return Vocabulary(found)
        return await _by_usage(client, options, model)
    finally:
        await client.aclose()


async def _single(client: Client, options: PlayOptions, model: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of ``words`` that are one token each, by halves: n words of n tokens are n such words."""
    tokens = await _count(client, options, model, words)
    if tokens is None or (tokens > len(words) and len(words) == 1):
        return ()
    if tokens <= len(words):
        return words
    half = len(words) // 2
    halves = [await _single(client, options, model, part) for part in (words[:half], words[half:])]
    return halves[0] + halves[1]


async def _count(client: Client, options: PlayOptions, model: str, words: Sequence[str]) -> int | None:
    """Return the tokens of the words, each behind a space; None where the engine does not tell."""
    text = "".join(f" {word}" for word in words)
    # Two names for each field: vLLM's and SGLang's, and llama.cpp's.
    question = {"model": model, "prompt": text, "content": text, "add_special_tokens": False, "add_special": False}
    try:
        reply = await client.request("POST", "/tokenize", body=orjson.dumps(question), headers=options.authorization)
        return len(orjson.loads(reply.body)["tokens"]) if reply.status == 200 else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


async def _by_usage(client: Client, options: PlayOptions, model: str) -> Vocabulary:
    counts = [await _prompt_tokens(client, options, model, words) for words in PROBES]
    if counts[0] is None or counts[1] is None or counts[1] <= counts[0]:
        return Vocabulary(COMMON_WORDS, told_by="a guess")
    return Vocabulary(COMMON_WORDS, (counts[1] - counts[0]) / (PROBES[1] - PROBES[0]), told_by="usage")


async def _prompt_tokens(client: Client, options: PlayOptions, model: str, words: int) -> int | None:
    text = " ".join(COMMON_WORDS[index % len(COMMON_WORDS)] for index in range(words))
    question = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    body, path = orjson.dumps(question), "/v1/chat/completions"
    try:
        reply = await client.request("POST", path, body=body, headers=options.authorization)
        return int(orjson.loads(reply.body)["usage"]["prompt_tokens"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
