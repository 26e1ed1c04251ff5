"""Recorded agents that send no id, with siblings and retries: at least 99 of 100 turns land in the right session."""

from random import Random

import pytest

from concur_proxy.core.lineage import Lineage
from concur_proxy.sim.data import coding_agents
from tests.core.lineage.agents import APIS, Player, Stage

SIBLINGS = 8


def played(api, *, calls_tools=0.7, retries=0.03):
    """Every fourth recorded session is eight samples of one task, which begin within a second of each other."""
    stage = Stage(Lineage(64 << 20, name="test"), retries=retries)
    random = Random(1)
    for number, script in enumerate(coding_agents()):
        begin = random.uniform(0, 600)
        for sibling in range(SIBLINGS if number % 4 == 0 else 1):
            name, task = f"{script.id}/{sibling}", f"Do task {script.id}."
            player = Player(name, script, APIS[api], first=task, calls_tools=calls_tools)
            stage.add(player, at=begin + sibling * 0.1)
    stage.play()
    return stage


@pytest.mark.parametrize("api", APIS)
def test_turns_land_in_the_right_session(api):
    stage = played(api)
    assert stage.turns > 5000
    assert stage.right >= 0.99 * stage.turns, stage.mistakes[:20]


def test_siblings_are_told_apart_by_text_alone():
    stage = played("chat", calls_tools=0.0)
    assert stage.right >= 0.99 * stage.turns, stage.mistakes[:20]
