import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx
import pytest

from concur_proxy.fleet.child import RestartPolicy, VllmChild, VllmChildError
from tests.clients.stack import ended

FAKE = str(Path(__file__).parent / "fake")
PATIENCE_S = 20.0
IMPATIENT = RestartPolicy(first_s=0.01, longest_s=0.02, limit=3, stable_s=3600.0)


def fake(
    flags: list[str] | None = None, *, grace_s: float = 10.0, output: Any = None, **variables: object
) -> VllmChild:
    env = {"PYTHONPATH": FAKE} | {name: str(value) for name, value in variables.items()}
    return VllmChild("m", flags or [], env=env, policy=IMPATIENT, grace_s=grace_s, output=output or (lambda _: None))


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await story()

    asyncio.run(bounded())


async def ask(child: VllmChild, path: str = "/") -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=child.url) as client:
        return dict((await client.get(path)).json())


async def crash(child: VllmChild) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await ask(child, "/crash")


class Watch:
    """What ``supervise`` reports, to be waited for."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    def start(self, child: VllmChild) -> asyncio.Task[None]:
        return asyncio.create_task(
            child.supervise(on_up=lambda: self.seen.put_nowait("up"), on_down=lambda: self.seen.put_nowait("down"))
        )


def test_it_starts_with_the_flags_of_both_sides_and_shows_what_it_prints() -> None:
    async def story() -> None:
        printed: list[bytes] = []
        child = fake(["--max-model-len", "4096"], output=printed.append)
        await child.start()
        arguments = (await ask(child))["arguments"]
        await child.stop()
        assert arguments == child.command[3:]
        assert {"--enable-prompt-tokens-details", "--max-model-len"} <= set(arguments)
        assert b"".join(printed) == b"loading weights\n"

    run(story)


def test_a_missing_vllm_is_told_with_its_remedy() -> None:
    async def story() -> None:
        with pytest.raises(VllmChildError, match=r"pip install 'concur-proxy\[vllm\]'"):
            await VllmChild("m").start()

    run(story)


def test_a_missing_interpreter_is_told() -> None:
    async def story() -> None:
        with pytest.raises(VllmChildError, match="cannot run /no/python: No such file"):
            await VllmChild("m", python="/no/python").start()

    run(story)


def test_a_start_that_fails_is_reported_at_once_with_the_engines_own_words(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "fails").touch()
        with pytest.raises(VllmChildError) as caught:
            await fake(FAKE_FAILS=tmp_path / "fails").start()
        assert "ended with status 3 while starting" in caught.value.message
        assert "ValueError: the model does not fit" in caught.value.message

    run(story)


def test_it_is_started_again_on_the_same_address_when_it_dies() -> None:
    async def story() -> None:
        child, watch = fake(), Watch()
        await child.start()
        supervisor = watch.start(child)
        before = (await ask(child))["pid"]
        await crash(child)
        assert [await watch.seen.get(), await watch.seen.get()] == ["down", "up"]
        assert (await ask(child))["pid"] != before
        await child.stop()
        await supervisor
        assert watch.seen.empty()

    run(story)


def test_it_gives_up_on_an_engine_that_keeps_dying(tmp_path: Path) -> None:
    async def story() -> None:
        child, watch = fake(FAKE_FAILS=tmp_path / "fails"), Watch()
        await child.start()
        supervisor = watch.start(child)
        (tmp_path / "fails").touch()
        await crash(child)
        with pytest.raises(VllmChildError) as caught:
            await supervisor
        assert caught.value.message.startswith("vLLM died 3 times in a row; it ended with status 3\n")
        assert "the model does not fit" in caught.value.message
        assert watch.seen.get_nowait() == "down"
        assert watch.seen.empty()

    run(story)


def test_its_workers_end_with_it_before_the_next_start(tmp_path: Path) -> None:
    async def story() -> None:
        child, watch = fake(FAKE_WORKER=tmp_path / "worker"), Watch()
        await child.start()
        supervisor = watch.start(child)
        worker = int((tmp_path / "worker").read_text())
        await crash(child)
        assert await watch.seen.get() == "down"
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
        await child.stop()
        await supervisor

    run(story)


@pytest.mark.parametrize("variables", [{}, {"FAKE_STUBBORN": 1}])
def test_stopping_ends_it_also_when_it_will_not(variables: dict[str, int]) -> None:
    async def story() -> None:
        child = fake(grace_s=0.1 if variables else 10.0, **variables)
        await child.start()
        pid = (await ask(child))["pid"]
        await child.stop()
        await child.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(story)


def test_it_can_be_stopped_between_death_and_restart() -> None:
    async def story() -> None:
        child = VllmChild("m", env={"PYTHONPATH": FAKE}, policy=RestartPolicy(first_s=3600.0), output=lambda _: None)
        watch = Watch()
        await child.start()
        supervisor = watch.start(child)
        await crash(child)
        assert await watch.seen.get() == "down"
        await child.stop()
        await supervisor

    run(story)


class SlowStart:
    """An engine that runs and does not become healthy: it answers on another address than it is asked on."""

    def __init__(self) -> None:
        self.printed: asyncio.Queue[bytes] = asyncio.Queue()
        self.child = fake(["--host", "127.0.0.2"], output=self.printed.put_nowait)
        self.child._command = dataclasses.replace(self.child._command, host="127.0.0.1")

    @property
    def status(self) -> int | None:
        assert self.child._process is not None
        return self.child._process.returncode


def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    async def story() -> None:
        slow = SlowStart()
        start = asyncio.create_task(slow.child.start())
        await slow.printed.get()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert slow.status == 128 + signal.SIGTERM

    run(story)


def test_stopping_ends_a_start_without_complaint() -> None:
    async def story() -> None:
        slow, watch = SlowStart(), Watch()
        start = asyncio.create_task(slow.child.start())
        await slow.printed.get()
        await slow.child.stop()
        await start
        await watch.start(slow.child)
        assert watch.seen.empty()
        assert slow.status == 128 + signal.SIGTERM

    run(story)


PROXY = """
import asyncio, sys
from concur_proxy.fleet.child import VllmChild

async def main():
    child = VllmChild("m", env={"PYTHONPATH": sys.argv[1]}, output=lambda _: None)
    await child.start()
    print(child.url, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    raise RuntimeError("forgot to stop it")

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["killed", "crashed"])
def test_it_does_not_outlive_a_proxy_that_could_not_stop_it(way: str) -> None:
    command = [sys.executable, "-c", PROXY, FAKE]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=subprocess.DEVNULL) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        pid = httpx.get(proxy.stdout.readline().decode().strip()).json()["pid"]
        if way == "killed":
            proxy.kill()
        else:
            proxy.stdin.close()
        assert ended(pid)


@pytest.mark.parametrize(
    ("healthy_for_s", "before", "after"),
    [(0.0, 0, 1), (5.0, 2, 3), (120.0, 4, 1)],
    ids=["first", "again", "was stable"],
)
def test_a_stable_life_ends_a_row_of_deaths(healthy_for_s: float, before: int, after: int) -> None:
    assert RestartPolicy().deaths_in_a_row(before, healthy_for_s=healthy_for_s) == after


def test_pauses_double_up_to_a_bound_and_end() -> None:
    policy = RestartPolicy(first_s=1.0, longest_s=3.0, limit=5)
    assert [policy.pause_s(deaths) for deaths in range(1, 6)] == [1.0, 2.0, 3.0, 3.0, None]
