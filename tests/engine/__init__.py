"""Real vLLM, on a device that exists only as a cost model (tests/rig), directly and through the proxy."""
