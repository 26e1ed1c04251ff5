"""Backends, models, proxies and GPUs."""

from __future__ import annotations

from boards.base import BYTES, PER_S, SECONDS, SHARE, STATES, TOKENS, B, Board, J, Panel, Query, Row, quantile, rate

FLEET = Board(
    "concur-fleet",
    "Concur / Fleet",
    "Backends side by side, the proxies themselves, and the GPUs where a DCGM exporter is scraped.",
    (
        Row(
            "Backends",
            (
                Panel(
                    "State",
                    "up takes turns; resting is the circuit breaker after failed turns; asleep was put to sleep; "
                    "warming gets into its empty cache what sessions share; lost does not answer.",
                    (Query(f"concur_backend_state{B} == 1", "{{backend}} {{state}}"),),
                    kind=STATES,
                    width=24,
                ),
                Panel(
                    "Requests per second",
                    "Evenly spread over backends of one pool, but for sessions that stay where their context is.",
                    (Query(rate("concur_requests_total", by="backend"), "{{backend}}"),),
                    PER_S,
                ),
                Panel(
                    "Failed requests per second",
                    "By how they ended. One backend alone: look at that engine. All: look at the network or at the "
                    "clients.",
                    (
                        Query(
                            'sum by (backend,outcome) (rate(concur_requests_total{job=~"$job",backend=~"$backend",'
                            'outcome!="completed"}[$__rate_interval]))',
                            "{{backend}} {{outcome}}",
                        ),
                    ),
                    PER_S,
                ),
                Panel(
                    "Generated tokens per second",
                    "One engine far below its peers with as many agents is thrashing, throttled or broken.",
                    (Query(rate("concur_completion_tokens_total", by="backend"), "{{backend}}"),),
                    TOKENS,
                ),
                Panel(
                    "Active sessions",
                    "Beside each engine's window on the Control board.",
                    (Query(f"concur_sessions_active{B}", "{{backend}}"),),
                ),
                Panel(
                    "Hit rate of the answers",
                    "Of about the last 50 turns on each backend.",
                    (Query(f"concur_turn_hit_ratio{B}", "{{backend}}"),),
                    SHARE,
                    top=1,
                ),
                Panel(
                    "Connections",
                    "Busy with a request, or kept for the next one.",
                    (Query(f"concur_upstream_connections{B}", "{{backend}} {{state}}"),),
                ),
                Panel(
                    "Bytes per second",
                    "Between proxy and backend. Agents send their whole history each turn: sent is the larger part.",
                    (Query(rate("concur_relay_bytes_total", by="backend,direction"), "{{backend}} {{direction}}"),),
                    BYTES,
                ),
                Panel(
                    "Tried again per second",
                    "Kept connections that had died, turns put back in line because a backend was full or lost, and "
                    "what became of requests that an engine failed. over_budget: too many for upstream.retry_budget.",
                    (
                        Query(rate("concur_connection_retries_total", by="backend"), "{{backend}} connection"),
                        Query(rate("concur_turns_requeued_total", J), "put back in line"),
                        Query(rate("concur_repeats_total", J, "result"), "{{result}}"),
                    ),
                    PER_S,
                ),
                Panel(
                    "Up",
                    "Backends that take turns, of those that are known.",
                    (
                        Query(f"sum(concur_backend_up{B})", "up"),
                        Query(f"count(concur_backend_up{B})", "known"),
                    ),
                ),
            ),
        ),
        Row(
            "Models",
            (
                Panel(
                    "Requests per second by model",
                    "Names that engines list; what clients ask for beyond them is other.",
                    (Query(rate("concur_model_requests_total", J, "model"), "{{model}}"),),
                    PER_S,
                ),
                Panel(
                    "Tokens per second by model",
                    "prompt holds cached.",
                    (Query(rate("concur_model_tokens_total", J, "model,type"), "{{model}} {{type}}"),),
                    TOKENS,
                ),
                Panel(
                    "Active sessions by model",
                    "Of the backends that serve it; a backend with several models counts for each of them.",
                    (
                        Query(
                            f"sum by (model) (concur_sessions_active{B} "
                            f"* on (job,instance,worker,backend) group_right () concur_model_info{B})",
                            "{{model}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Proxies",
            (
                Panel(
                    "Delay of the event loop, p99",
                    "Below 10 ms. More: every stream stutters; the proxy's core is full, or something blocks it.",
                    (Query(quantile(0.99, "concur_event_loop_lag_seconds", J, "instance"), "{{instance}}"),),
                    SECONDS,
                ),
                Panel(
                    "CPU",
                    "Cores. One process uses one core.",
                    (Query(f"rate(process_cpu_seconds_total{J}[$__rate_interval])", "{{instance}}"),),
                ),
                Panel(
                    "Memory",
                    "Held turns keep their bodies: it follows turns held.",
                    (Query(f"process_resident_memory_bytes{J}", "{{instance}}"),),
                    "bytes",
                ),
                Panel(
                    "Open requests and leases",
                    "Leases without a request of their own are those of background responses; more than that is a "
                    "leak.",
                    (
                        Query(f"concur_requests_open{J}", "{{instance}} open requests"),
                        Query(f"sum by (instance) (concur_turns_running{J})", "{{instance}} leases"),
                        Query(f"concur_background_leases{J}", "{{instance}} background leases"),
                    ),
                ),
                Panel(
                    "Open files",
                    "Each connection is one.",
                    (
                        Query(f"process_open_fds{J}", "{{instance}}"),
                        Query(f"process_max_fds{J}", "{{instance}} limit"),
                    ),
                ),
                Panel(
                    "Version",
                    "Different ones side by side: an update is on its way, or got stuck.",
                    (Query(f"concur_build_info{J}", "{{instance}} {{version}}, compiled: {{compiled}}"),),
                    kind=STATES,
                ),
            ),
        ),
        Row(
            "Replicas (where several share their state)",
            (
                Panel(
                    "Shared state",
                    "Replicas known and sum of leaders: one leader, and as many replicas as there are. Up 0: Redis "
                    "does not answer, and shares stay as they are.",
                    (
                        Query(f"concur_state_up{J}", "{{instance}} up"),
                        Query(f"concur_state_replicas{J}", "{{instance}} replicas"),
                        Query(f"sum(concur_state_leader{J})", "leaders"),
                    ),
                ),
                Panel(
                    "Sessions that moved",
                    "Many: the load balancer sends each turn elsewhere. Late: turns that did not wait for Redis.",
                    (
                        Query(f"rate(concur_sessions_moved_total{J}[$__rate_interval])", "{{instance}} moved"),
                        Query(
                            f"sum by (instance, result) (rate(concur_session_claims_total{J}[$__rate_interval]))",
                            "{{instance}} asked for, {{result}}",
                        ),
                    ),
                ),
                Panel(
                    "Windows and shares",
                    "The shares add up to the window, or to less for a moment.",
                    (
                        Query(f"max by (backend) (concur_window_whole{J})", "{{backend}} window"),
                        Query(f"sum by (backend) (concur_window{J})", "{{backend}} shares"),
                    ),
                ),
            ),
        ),
        Row(
            "GPUs (where a DCGM exporter is scraped)",
            (
                Panel(
                    "SM activity",
                    "Share of time in which multiprocessors had work. High while tokens per second are low: "
                    "recomputation.",
                    (Query("DCGM_FI_PROF_SM_ACTIVE", "{{Hostname}} GPU {{gpu}}"),),
                    SHARE,
                    top=1,
                    width=6,
                ),
                Panel(
                    "Memory bandwidth",
                    "Share of time in which the memory was busy. Decoding lives on it.",
                    (Query("DCGM_FI_PROF_DRAM_ACTIVE", "{{Hostname}} GPU {{gpu}}"),),
                    SHARE,
                    top=1,
                    width=6,
                ),
                Panel(
                    "Tensor activity",
                    "Prefill lives on it: high for long, with few new tokens, is history that is prefilled again.",
                    (Query("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{{Hostname}} GPU {{gpu}}"),),
                    SHARE,
                    top=1,
                    width=6,
                ),
                Panel(
                    "Temperature",
                    "A GPU that is hotter than its peers is throttled soon.",
                    (Query("DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} GPU {{gpu}}"),),
                    "celsius",
                    width=6,
                ),
            ),
        ),
    ),
)
