import pytest

from concur_proxy.errors import ConfigError
from concur_proxy.sim.options import EngineOptions, deploy
from concur_proxy.sim.profiles import PROFILES


def test_options_left_out_come_from_the_profile():
    made = deploy(EngineOptions(profile="llama-3-70b-4xa100"))
    profile = PROFILES["llama-3-70b-4xa100"]
    assert made.model == profile.model.name
    assert made.max_model_len == 8192
    assert made.engine.blocks == profile.kv_tokens // 16
    assert (made.engine.max_num_seqs, made.engine.max_num_batched_tokens) == (256, 2048)
    assert made.engine.cost == profile.cost


def test_given_options_win():
    options = EngineOptions(
        kv_tokens=1600, speed=10, model="tiny", max_num_seqs=3, max_num_batched_tokens=100, max_model_len=500
    )
    made = deploy(options)
    assert (made.model, made.max_model_len, made.engine.blocks) == ("tiny", 500, 100)
    assert (made.engine.max_num_seqs, made.engine.max_num_batched_tokens) == (3, 100)
    assert made.engine.cost == PROFILES["laptop"].cost.faster(10)


def test_a_context_is_never_longer_than_the_cache():
    assert deploy(EngineOptions(kv_tokens=1600)).max_model_len == 99 * 16


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (EngineOptions(profile="abacus"), "profile: 'abacus' is not one of laptop, "),
        (EngineOptions(speed=0), "speed: 0 must be above 0"),
        (EngineOptions(speed=float("nan")), "speed: nan"),
        (EngineOptions(kv_tokens=31), "kv_tokens: 31 must be at least 32"),
        (EngineOptions(max_num_seqs=0), "max_num_seqs: 0 must be from 1 to"),
        (EngineOptions(max_num_batched_tokens=100), "max_num_seqs: 256 must be from 1 to max_num_batched_tokens = 100"),
        (EngineOptions(kv_tokens=1600, max_model_len=1585), "max_model_len: 1585 must be from 2 to 1584"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(options, why):
    with pytest.raises(ConfigError, match=why):
        deploy(options)
