#!/usr/bin/env python3
"""What recognising a session by its messages costs: microseconds per turn, and memory per run. No network.

    python bench/lineage_cost.py
    python bench/lineage_cost.py --profile     # where the time of a turn of one message goes

Bodies are parsed anew for each turn, as in the proxy, so that no hash of a text is remembered from before; parsing is
not counted, and stands beside it for comparison. Times are medians, of the processor.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable
from random import Random

import orjson

from concur_proxy.core.lineage import Lineage, Run, talk_of

LIMIT = 64 << 20
LETTERS = "abcdefghijklmnopqrstuvwxyz    \n"


def text(random: Random, length: int) -> str:
    return "".join(random.choices(LETTERS, k=length))


def chat(messages: list[dict[str, object]]) -> bytes:
    return orjson.dumps({"model": "m", "messages": messages, "tools": [{"type": "function"}]})


def single_turns(count: int) -> Iterable[bytes]:
    """Requests of one message, all different."""
    random = Random(1)
    for index in range(count):
        yield chat([{"role": "user", "content": f"{index} {text(random, 400)}"}])


def same_turns(count: int) -> Iterable[bytes]:
    """One request again and again: every turn is a sibling of all others."""
    return [chat([{"role": "user", "content": text(Random(2), 400)}])] * count


def long_history(count: int, *, messages: int, characters: int) -> Iterable[bytes]:
    """Turns of one agent that begins with a history of so many messages."""
    random = Random(3)
    history: list[dict[str, object]] = [{"role": "system", "content": text(random, characters)}]
    roles = ("user", "assistant")
    history += [{"role": roles[index % 2], "content": text(random, characters)} for index in range(messages - 1)]
    for index in range(count):
        yield chat(history)
        call = {"id": f"call_{index}", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"call_{index}", "content": text(random, characters)})


def play(bodies: Iterable[bytes]) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of each turn: in lineage, the same per message, and in parsing its body."""
    lineage = Lineage(LIMIT, name="bench")
    spent, per_message, parsing = [], [], []
    for body in bodies:
        begin = time.thread_time()
        fields = orjson.loads(body)
        parsed = time.thread_time()
        run = turn(lineage, fields)
        lineage.answered(run, completed=True)
        spent.append(time.thread_time() - parsed)
        per_message.append(spent[-1] / len(fields["messages"]))
        parsing.append(parsed - begin)
    return spent, per_message, parsing


def turn(lineage: Lineage, fields: dict[str, object]) -> Run:
    talk = talk_of(fields)
    assert talk is not None
    return lineage.recognise("key", talk).run


def bytes_per_run(count: int) -> tuple[float, float]:
    """Return memory per run of one turn: what is measured, and what lineage reckons."""
    gc.collect()
    tracemalloc.start()
    lineage = Lineage(1 << 40, name="bench")
    for body in single_turns(count):
        lineage.answered(turn(lineage, orjson.loads(body)), completed=True)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / count, lineage.bytes / count


def profile(count: int) -> None:
    bodies = list(single_turns(count))
    profiler = cProfile.Profile()
    profiler.runcall(play, bodies)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20_000, help="turns of one message (default: %(default)s)")
    parser.add_argument("--long-turns", type=int, default=30, help="turns of long histories (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, and nothing else")
    options = parser.parse_args()
    if options.profile:
        profile(options.turns)
        return
    few, many = options.long_turns, options.turns
    cases: list[tuple[str, Callable[[], Iterable[bytes]]]] = [
        ("one message of 400 characters, all different", lambda: single_turns(many)),
        ("one message of 400 characters, always the same", lambda: same_turns(many)),
        ("50 messages of 2,000 characters, and more", lambda: long_history(few, messages=50, characters=2000)),
        ("500 messages of 2,000 characters, and more", lambda: long_history(few, messages=500, characters=2000)),
        ("500 messages of 10,000 characters, and more", lambda: long_history(few, messages=500, characters=10_000)),
    ]
    print(f"{'a turn of':50s} {'turn':>10s} {'message':>10s} {'parsing':>12s}")
    for label, bodies in cases:
        cost, each, beside = (statistics.median(times) * 1e6 for times in play(bodies()))
        print(f"{label:50s} {cost:7.1f} us {each:7.2f} us {beside:9.1f} us", flush=True)
    measured, reckoned = bytes_per_run(many)
    print(f"{'memory of a run of one turn':50s} {measured:7.0f} bytes, reckoned as {reckoned:.0f}")


if __name__ == "__main__":
    main()
