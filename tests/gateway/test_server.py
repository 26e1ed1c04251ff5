"""How the process ends."""

import asyncio
import contextlib
import signal
import sys

import pytest

from tests.gateway.harness import CHAT, Client, Engine, ok, request, run, until


@contextlib.asynccontextmanager
async def process(engine, grace_s=20.0):
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.gateway.serve_for_test", engine.url, str(grace_s)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    child.port = int(await child.stdout.readline())
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def connect(child):
    return Client(*await asyncio.open_connection("127.0.0.1", child.port))


async def refused(child):
    """Wait until the process takes no more connections."""
    async with asyncio.timeout(5):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", child.port)
            except ConnectionRefusedError:
                return
            except ConnectionResetError:  # it was in the backlog when the end came
                continue
            writer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_proxy_with_status_0(number):
    async def main():
        async with Engine() as engine, process(engine) as child:
            client = await connect(child)
            await client.send(request())
            assert (await client.answer()).status == 200
            child.send_signal(number)
            assert await client.at_end()
            assert await child.wait() == 0
            await client.close()

    run(main())


def test_sigterm_refuses_the_held_and_lets_the_running_end():
    async def slow(_seen, wire):
        await release.wait()
        await wire.send(ok())

    async def main():
        async with Engine(slow) as engine, process(engine) as child:
            running, held = await connect(child), await connect(child)
            await running.send(request())
            await until(lambda: engine.seen)
            await held.send(request(CHAT))
            await held.send(request(b"", path=b"/livez", method=b"GET"))
            child.send_signal(signal.SIGTERM)
            answer = await held.answer()
            assert (answer.status, answer.value(b"retry-after")) == (503, b"2")
            await refused(child)
            release.set()
            assert (await running.answer()).status == 200
            assert await child.wait() == 0
            await running.close()
            await held.close()

    release = asyncio.Event()
    run(main())


async def silent(_seen, wire):
    await wire.gone()
    return False


def test_what_outlasts_the_grace_time_is_ended():
    async def main():
        async with Engine(silent) as engine, process(engine, grace_s=0.1) as child:
            client = await connect(child)
            await client.send(request())
            await until(lambda: engine.seen)
            child.send_signal(signal.SIGTERM)
            assert await child.wait() == 0
            assert b"1 requests did not end within the grace time" in await child.stderr.read()
            await until(lambda: not engine.open)
            client.leave()

    run(main())


def test_a_second_signal_ends_at_once():
    async def main():
        async with Engine(silent) as engine, process(engine, grace_s=3600) as child:
            client = await connect(child)
            await client.send(request())
            await until(lambda: engine.seen)
            child.send_signal(signal.SIGTERM)
            await refused(child)
            child.send_signal(signal.SIGTERM)
            assert await child.wait() == 0
            client.leave()

    run(main())
