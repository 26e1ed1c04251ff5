"""Real SGLang that schedules by priority serves people before batch work that came first."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from concur_proxy.engines import sglang as sglang_metrics
from concur_proxy.engines.exposition import Page, read_page
from tests.clients.stack import ProxyProcess
from tests.rig import sglang
from tests.rig.engine import SglangEngine

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PATIENCE_S = 120.0
CHAT = "/v1/chat/completions"
HEADERS = {  # in the order in which they come
    "batch 0": {"x-concur-cold": "1"},
    "batch 1": {"x-concur-cold": "1"},
    "person": {},
    "in a hurry": {"x-smg-priority": "5"},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[SglangEngine]:
    if remedy := sglang.missing():
        pytest.skip(remedy)
    with SglangEngine(max_seqs=1, extra_flags=("--enable-priority-scheduling",)) as running:
        yield running


@pytest.fixture
def proxy(engine: SglangEngine, tmp_path: Path) -> Iterator[ProxyProcess]:
    file = tmp_path / "config.yaml"
    backend = {"url": engine.url, "priorities": "higher_first"}
    file.write_text(json.dumps({"backends": [backend], "control": {"law": "unlimited"}}))
    with ProxyProcess([], flags=("--config", str(file))) as running:
        yield running


def body(content: str, tokens: int) -> dict[str, object]:
    messages = [{"role": "user", "content": content}]
    return {"model": "tiny", "messages": messages, "max_tokens": tokens, "ignore_eos": True}


async def until_loaded(engine: SglangEngine, client: httpx.AsyncClient, *, running: int, waiting: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (rank,) = (await client.get(f"{engine.url}/v1/loads?include=core")).json()["loads"]
        if (rank["num_running_reqs"], rank["num_waiting_reqs"]) == (running, waiting):
            return
        assert time.monotonic() < deadline, f"{rank}\n{engine.log()}"


async def until_its_page_tells(engine: SglangEngine, client: httpx.AsyncClient, *, waiting: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            page = read_page((await client.get(f"{engine.url}/metrics")).text)
            assert isinstance(page, Page)
            if sglang_metrics.read(page, 0.0).waiting == waiting:
                return


def test_people_go_before_batch_work_inside_the_engine(engine: SglangEngine, proxy: ProxyProcess) -> None:
    """Turns of no priority too: SGLang by itself puts them behind all that have one."""
    done: list[str] = []

    async def main() -> None:
        async with httpx.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as client:

            async def ask(name: str) -> None:
                answer = await client.post(CHAT, json=body(name, 3), headers=HEADERS[name])
                assert answer.status_code == 200, answer.text
                done.append(name)

            first = asyncio.create_task(
                client.post(f"{engine.url}{CHAT}", json={**body("goes on", 8000), "priority": 5})
            )
            await until_loaded(engine, client, running=1, waiting=0)
            asking: list[asyncio.Task[None]] = []
            for waiting, name in enumerate(HEADERS, 1):
                asking.append(asyncio.create_task(ask(name)))
                await until_loaded(engine, client, running=1, waiting=waiting)
            await until_its_page_tells(engine, client, waiting=len(HEADERS))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await asyncio.gather(*asking)

    asyncio.run(main())
    assert done == ["in a hurry", "person", "batch 0", "batch 1"]
