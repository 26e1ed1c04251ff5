"""Programs that people run beside the proxy, as they are."""
