"""Replicas and their Redis die, freeze and are replaced under load: every client gets an answer, no lease is lost."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import replicas
from tests.chaos.replicas import WINDOW, Seen
from tests.state.redis import needs_redis

pytestmark = [needs_redis, pytest.mark.slow, pytest.mark.service]


def check(seen: Seen) -> None:
    assert seen.failed == {}
    assert seen.books.total() == 0, seen.books
    assert seen.sum_of_shares == WINDOW
    assert seen.moved > 0, "turns of one session went to one replica only: this has shown nothing"


def check_window(seen: Seen) -> None:
    """No agent here has two turns of one session at once: places that move are never used twice."""
    assert seen.most_running <= WINDOW


def test_a_replica_is_killed() -> None:
    seen = asyncio.run(replicas.kill_a_replica())
    check(seen)
    check_window(seen)


def test_redis_is_killed_and_comes_back_with_nothing() -> None:
    check(asyncio.run(replicas.kill_redis()))


def test_redis_is_frozen_for_longer_than_a_replica_is_waited_for() -> None:
    check(asyncio.run(replicas.freeze_redis()))


def test_redis_is_slow() -> None:
    check(asyncio.run(replicas.slow_redis()))


def test_a_replica_is_cut_off_from_redis_and_taken_for_dead() -> None:
    check(asyncio.run(replicas.cut_off_a_replica()))


def test_all_replicas_are_cut_off_from_redis() -> None:
    check(asyncio.run(replicas.cut_redis_off()))  # who has lost a session in that moment has yet to hear of it


def test_clocks_are_an_hour_wrong_all_of_a_sudden() -> None:
    seen = asyncio.run(replicas.clocks_jump())
    check(seen)
    check_window(seen)


def test_three_replicas_are_replaced_one_by_one() -> None:
    seen = asyncio.run(replicas.rolling_restart())
    check(seen)
    check_window(seen)
