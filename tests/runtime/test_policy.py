"""From settings to what the parts take."""

from concur_proxy.config import GateSettings, ServerSettings
from concur_proxy.core.policy import GatePolicy, TenantLimits
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.runtime import policy


def test_the_limits_on_clients_are_what_the_settings_say():
    assert policy.client_limits(ServerSettings()) == ClientLimits(max_connections=20_000)
    changed = ServerSettings(head_timeout_s=1, max_headers=17, max_connections_per_client=3)
    limits = policy.client_limits(changed)
    assert (limits.head_timeout_s, limits.max_headers, limits.max_connections_per_client) == (1, 17, 3)


def test_limits_of_tenants_reach_the_gate():
    settings = GateSettings(limits={"default": {"held_turns": 3}, "nightly": {"tokens_per_minute": 1000}})
    made = policy.gate_policy(settings)
    assert made.limits == {"default": TenantLimits(held_turns=3), "nightly": TenantLimits(tokens_per_minute=1000)}
    assert policy.gate_policy(GateSettings()) == GatePolicy()
