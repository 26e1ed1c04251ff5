"""The regression guard tells a loss from a change, and what it compares is there to be compared."""

from __future__ import annotations

import json

import pytest

from bench import guard
from bench.guard import CHECKS, FOLDER, RECORD, SEEDS, Check, left, play, tasks
from concur_proxy.sim.arms import arm
from concur_proxy.simulate import load_scenario

RECORDED = json.loads(RECORD.read_text())


def test_every_check_is_recorded_and_nothing_else():
    assert set(RECORDED) == {check.name for check in CHECKS}


def test_every_check_can_be_played():
    for scenario, name, _ in tasks():
        assert load_scenario(FOLDER / f"{scenario}.yaml").about
        assert arm(name).name == name
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {check.scenario for check in CHECKS}


def test_what_was_recorded_is_within_its_bands():
    assert not list(left(RECORDED, RECORDED))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_five_percent_lost_are_told(check):
    (told,) = left({**RECORDED, check.name: RECORDED[check.name] * 1.05}, RECORDED)
    assert told.startswith(check.name)
    assert "something was lost" in told


def test_much_gained_is_told_too():
    (told,) = left({**RECORDED, CHECKS[0].name: RECORDED[CHECKS[0].name] * 0.85}, RECORDED)
    assert "record it" in told


def test_what_was_never_recorded_is_told():
    assert len(list(left(RECORDED, {}))) == len(CHECKS)


def test_the_best_of_the_others_counts_in_each_seed():
    check = Check("agents", "mine", ("a", "b"))
    scores = {"mine": 6.0, "a": 12.0, "b": 9.0}
    played = {("agents", name, seed): {"score": score} for name, score in scores.items() for seed in SEEDS}
    played["agents", "b", SEEDS[0]] = {"score": 24.0}
    assert check.ratio(played) == pytest.approx((6 / 12) ** (1 / 8) * (6 / 9) ** (7 / 8))


def test_a_law_that_holds_nobody_is_found_out(monkeypatch):
    monkeypatch.setattr(guard, "SEEDS", SEEDS[:1])
    (check,) = [check for check in CHECKS if check.name == "sub-agents: score of meanfield / best fixed"]
    spoilt = {check.arm: "unlimited"}
    played = {
        (check.scenario, name, SEEDS[0]): play((check.scenario, spoilt.get(name, name), SEEDS[0]))
        for name in (check.arm, *check.others)
    }
    (told,) = left({**RECORDED, check.name: check.ratio(played)}, RECORDED)
    assert "something was lost" in told
