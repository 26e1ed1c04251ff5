import gzip
import json

import pytest

from concur_proxy.errors import ConfigError
from concur_proxy.simulate.files import load_recordings, load_scenario, parse

GOOD = """\
about: two agents
backends:
  - engine: {profile: laptop}
agents:
  - sessions: 2
"""


def test_a_short_file_is_enough():
    scenario = parse(GOOD, "x.yaml", "x")
    assert (scenario.name, list(scenario.engines), scenario.agents[0].turns.constant) == ("x", ["engine"], 20)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sessions: 2", "session: 2", "x.yaml:5: agents[0].session = 2: unknown key; did you mean sessions?"),
        ("sessions: 2", "sessions: 0", "x.yaml:5: agents[0].sessions = 0: input should be greater than or equal to 1"),
        (
            "sessions: 2",
            "sessions: 2\n    think_s: {colour: 3}",
            "think_s.colour = 3: unknown key; allowed here: constant",
        ),
        (
            "sessions: 2",
            "sessions: 2\n    think_s: {mean: 3, median: 2}",
            "x.yaml:6: agents[0].think_s: needs exactly one",
        ),
        ("sessions: 2", "sessions: 2\n    unseen: true", "nothing to control"),
        ("sessions: 2", "sessions: 2\n    model: other", "no backend serves the model other"),
        ("profile: laptop", "profile: lapdog", "x.yaml:3: backends[0].engine.profile = 'lapdog': is none of laptop"),
        ("profile: laptop", "kv_tokens: 3000", "needs a profile, or kv_tokens and cost"),
        ("about: two agents\n", "", "about: is required"),
        ("about: two agents", "about: a: b", "x.yaml:1: not valid YAML"),
        ("agents:\n  - sessions: 2\n", "agents: []\n", "at least one entry"),
        (GOOD, "- 1", "must hold a scenario"),
    ],
)
def test_errors_name_the_place_and_the_remedy(old, new, said):
    with pytest.raises(ConfigError) as error:
        parse(GOOD.replace(old, new), "x.yaml", "x")
    assert said in error.value.message


def test_a_name_that_is_none_is_compared_with_those_that_are(tmp_path):
    with pytest.raises(ConfigError, match="did you mean think-5s"):
        load_scenario("think-5")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_scenario(tmp_path)


def test_recordings_come_gzipped_or_plain(tmp_path):
    turn = {"in": 5000, "prefix": 0, "out": 100, "think_s": 0}
    line = json.dumps({"id": "s", "system_tokens": 1, "tool_tokens": 2, "turns": [turn]}).encode()
    plain, packed, wrong = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    plain.write_bytes(line)
    packed.write_bytes(gzip.compress(line))
    wrong.write_bytes(b"{}")
    assert load_recordings(plain) == load_recordings(packed)
    assert len(load_recordings(None)) == 96
    with pytest.raises(ConfigError, match="holds no recorded sessions"):
        load_recordings(wrong)
