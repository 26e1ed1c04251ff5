"""Sends one prompt twice, for one token each: does the engine find it in its cache, and does it tell?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from concur_proxy.doctor.facts import Warmth

WORDS = 300
"""Some 900 tokens: only whole blocks are found again, and the largest that engines use have 500."""
TIMEOUT_S = 60.0
PATH = "/v1/completions"


async def warmth(url: str, model: str, *, headers: Mapping[str, str], salt: str) -> Warmth:
    """Ask twice. ``salt`` begins the prompt, so that nobody else's context is met."""
    prompt = f"{salt} " + " ".join(f"word{number % 97}" for number in range(WORDS))
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    told: Warmth = Warmth()
    async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers, trust_env=False) as http:
        for _ in range(2):
            try:
                answer = await http.post(f"{url}{PATH}", json=body)
            except httpx.HTTPError as error:
                return Warmth(problem=f"{PATH}: {str(error) or type(error).__name__}")
            if answer.status_code != httpx.codes.OK:
                return Warmth(problem=f"{PATH} answers {answer.status_code}")
            told = read_usage(answer)
    return told


def read_usage(answer: httpx.Response) -> Warmth:
    """Return what the usage of an answer says of cached tokens; null details tell nothing."""
    try:
        usage = answer.json()["usage"]
        prompt_tokens = int(usage["prompt_tokens"])
    except (ValueError, KeyError, TypeError):
        return Warmth(problem=f"{PATH}: the answer has no usage")
    details: Any = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    if not isinstance(cached, int):
        return Warmth(prompt_tokens=prompt_tokens)
    return Warmth(prompt_tokens=prompt_tokens, tells=True, cached_tokens=cached)
