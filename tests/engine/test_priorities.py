"""Real vLLM that schedules by priority serves interactive turns before batch work that came first."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.harness import PATIENCE_S, Proxy, run
from tests.rig.engine import RigEngine
from tests.rig.environments import missing

pytestmark = pytest.mark.engine

JSON = b"content-type: application/json\r\n"


@pytest.fixture(scope="module")
def by_priority() -> Iterator[RigEngine]:
    if remedy := missing("vllm"):
        pytest.skip(remedy)
    with RigEngine("vllm", max_seqs=1, speed=4.0, extra_flags=("--scheduling-policy", "priority")) as engine:
        yield engine


def body(words: str, tokens: int) -> bytes:
    messages = [{"role": "user", "content": words}]
    return json.dumps({"model": "tiny", "messages": messages, "max_tokens": tokens, "ignore_eos": True}).encode()


async def until_waiting(url: str, requests: int) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE_S):
        while True:
            page = (await client.get(f"{url}/metrics")).text
            found = [line for line in page.splitlines() if line.startswith("vllm:num_requests_waiting{")]
            if found and float(found[0].rpartition(" ")[2]) >= requests:
                return


def test_interactive_turns_go_before_batch_work_inside_the_engine(by_priority: RigEngine) -> None:
    async def main() -> None:
        done: list[str] = []

        async with Proxy((by_priority.url,)) as proxy:
            for pool in proxy.pools.values():
                pool.priority_sign = -1

            async def ask(name: str, tokens: int, more: bytes = b"") -> None:
                answer = await proxy.ask(body(name, tokens), headers=JSON + more)
                assert answer.status == 200, answer.body
                done.append(name)

            tasks = [asyncio.create_task(ask("runs", 1500))]
            tasks += [asyncio.create_task(ask(f"batch {number}", 5, b"x-concur-cold: 1\r\n")) for number in range(3)]
            await until_waiting(by_priority.url, 3)
            tasks.append(asyncio.create_task(ask("person", 5)))
            await asyncio.gather(*tasks)
        assert done.index("person") == min(done.index(f"batch {number}") for number in range(3)) - 1

    run(main())
