"""From settings to what the parts take."""

from concur_proxy.config import ServerSettings
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.runtime import policy


def test_the_limits_on_clients_are_what_the_settings_say():
    assert policy.client_limits(ServerSettings()) == ClientLimits(max_connections=20_000)
    changed = ServerSettings(head_timeout_s=1, max_headers=17, max_connections_per_client=3)
    limits = policy.client_limits(changed)
    assert (limits.head_timeout_s, limits.max_headers, limits.max_connections_per_client) == (1, 17, 3)
