"""The arithmetic of profiles, against numbers that are known without it."""

import pytest

from concur_proxy.sim.profiles import GIB, MEMORY_SHARE, PROFILES, WORKING_SHARE


@pytest.mark.parametrize(
    ("name", "kib"), [("qwen3-32b-1xh100", 256), ("llama-3-70b-2xa100", 320), ("deepseek-v3-8xh200", 68.625)]
)
def test_kv_bytes_per_token_follow_from_the_models_shape(name, kib):
    assert PROFILES[name].model.kv_bytes_per_token == kib * 1024


def test_one_h100_with_qwen3_32b_is_the_device_of_the_projects_measurements():
    cost = PROFILES["qwen3-32b-1xh100"].cost
    assert (cost.a, cost.b, cost.c, cost.d) == pytest.approx((0.022, 1.25e-4, 3e-5, 8.7e-8), rel=0.02)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_weights_and_cache_fit_the_cards(profile):
    used = profile.model.weight_bytes / profile.cards + profile.kv_tokens * profile.kv_bytes_per_card
    assert used <= profile.card.memory_gib * GIB * (MEMORY_SHARE - WORKING_SHARE)
    assert profile.kv_tokens > profile.model.max_len / 2, "an engine needs room for a context worth the name"
    assert PROFILES[profile.name] is profile


def test_latent_kv_is_copied_to_every_card_and_heads_are_divided():
    eight, sixteen = PROFILES["deepseek-v3-8xh200"], PROFILES["deepseek-v3-16xh100"]
    assert eight.kv_bytes_per_card == sixteen.kv_bytes_per_card == eight.model.kv_bytes_per_token
    qwen = PROFILES["qwen3-32b-8xh100"]
    assert qwen.kv_bytes_per_card == qwen.model.kv_bytes_per_token / 8


def test_more_cards_make_every_step_cheaper_but_not_in_proportion():
    one, two, eight = (PROFILES[f"qwen3-32b-{cards}xh100"].cost for cards in (1, 2, 8))
    assert one.a > two.a > eight.a > one.a / 8
    assert one.b == pytest.approx(8 * eight.b)


def test_a_mixture_of_experts_reads_less_than_all_its_weights_but_more_than_one_tokens():
    model = PROFILES["deepseek-v3-8xh200"].model
    assert model.active_parameters < model.bytes_read_per_step < model.weight_bytes
