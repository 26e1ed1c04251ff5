"""An engine in virtual time: KV blocks, scheduler, step cost, workloads, and a server around them.

``kvcache`` and ``engine`` follow the rules of vLLM's V1 engine; they know neither a clock nor a socket. ``server`` is
the only shell: the same engine at real time, or a multiple of it, behind an OpenAI-compatible HTTP interface.
"""
