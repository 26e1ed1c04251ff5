"""What the law goes by."""

from __future__ import annotations

from boards.base import PER_S, SECONDS, SHARE, STATES, TOKENS, B, Board, J, Panel, Query, Row, rate

CONTROL = Board(
    "concur-control",
    "Concur / Control",
    "Every input of the law over time, and what it made of it.",
    (
        Row(
            "The window",
            (
                Panel(
                    "Window and bounds",
                    "In the law's unit. A window that lies on a bound for long says that the bound decides, not the "
                    "law.",
                    (
                        Query(f"concur_window{B} < +Inf", "{{backend}} ({{unit}})"),
                        Query(f"concur_window_min{B}", "{{backend}} min"),
                        Query(f"concur_window_max{B} < +Inf", "{{backend}} max"),
                    ),
                ),
                Panel(
                    "Active and running",
                    "The window limits active sessions, not running requests. The distance between the two is agents "
                    "in tool calls.",
                    (
                        Query(f"concur_sessions_active{B}", "{{backend}} active"),
                        Query(f"concur_turns_running{B}", "{{backend}} running"),
                    ),
                ),
                Panel(
                    "Changes per minute",
                    "Up and down. Many of both at once is a law that hunts: look at the delay of its signal.",
                    (
                        Query(
                            f"60 * {rate('concur_window_changes_total', by='backend,direction')}",
                            "{{backend}} {{direction}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "What the law goes by",
            (
                Panel(
                    "Law's values",
                    "What the law in force knows, by name (docs/laws.md): congestion, predicted and observed hit "
                    "rate, and so on. Nothing under a law that knows nothing.",
                    (Query(f"concur_law_value{B}", "{{backend}} {{name}}"),),
                    width=12,
                ),
                Panel(
                    "Law's thresholds",
                    "What it was told to go by. A change here is somebody's change of the configuration.",
                    (Query(f"concur_law_parameter{J}", "{{name}}"),),
                    width=12,
                ),
                Panel(
                    "Hit rates",
                    "Of the engine's own counters, of the answers, and of an undisturbed cache. The engine's includes "
                    "other clients' traffic.",
                    (
                        Query(f"concur_engine_hit_ratio{B}", "{{backend}} engine"),
                        Query(f"concur_turn_hit_ratio{B}", "{{backend}} answers"),
                        Query(f"concur_expected_hit_ratio{B}", "{{backend}} possible"),
                    ),
                    SHARE,
                    top=1,
                ),
                Panel(
                    "KV usage, as the engine says",
                    "Blocks of running requests only: contexts of idle agents count as free. Full means that requests "
                    "wait inside the engine or are preempted.",
                    (Query(f"concur_kv_usage_ratio{B}", "{{backend}}"),),
                    SHARE,
                    top=1,
                ),
                Panel(
                    "Contexts, capacity, cache that seems to be there",
                    "Active contexts in tokens against what the engine says it has and against what was found to be "
                    "there. The last one far below capacity: somebody else uses the cache.",
                    (
                        Query(f"concur_footprint_tokens{B}", "{{backend}} active contexts"),
                        Query(f"concur_capacity_tokens{B}", "{{backend}} capacity"),
                        Query(f"concur_cache_tokens{B}", "{{backend}} seems to be there"),
                    ),
                    TOKENS,
                ),
                Panel(
                    "Inside the engine",
                    "Requests that it runs and that it queues. A queue inside the engine is past the gate's reach: "
                    "the window is too large for what runs at once.",
                    (
                        Query(f"concur_engine_running{B}", "{{backend}} running"),
                        Query(f"concur_engine_waiting{B}", "{{backend}} waiting"),
                    ),
                ),
                Panel(
                    "Preemptions and refusals by the engine",
                    "Within the newest interval. Any preemption is a running context thrown out: laws cut the window "
                    "at once.",
                    (
                        Query(f"concur_engine_preemptions{B}", "{{backend}} preempted"),
                        Query(f"concur_engine_rejections{B}", "{{backend}} refused"),
                    ),
                ),
                Panel(
                    "Evicted and expected tokens per second",
                    "Of what returning sessions should have found in the cache, what was not there.",
                    (
                        Query(rate("concur_expected_cached_tokens_total", by="backend"), "{{backend}} expected"),
                        Query(rate("concur_evicted_tokens_total", by="backend"), "{{backend}} evicted"),
                    ),
                    TOKENS,
                ),
            ),
        ),
        Row(
            "Is it steering?",
            (
                Panel(
                    "Age of the signal",
                    "Seconds since the engine's newest sample. Above control.stale_after_s the window is frozen.",
                    (Query(f"concur_signal_age_seconds{B}", "{{backend}}"),),
                    SECONDS,
                ),
                Panel(
                    "Scrapes per second",
                    "Failed ones: concur-proxy status says why.",
                    (Query(rate("concur_scrapes_total", by="backend,result"), "{{backend}} {{result}}"),),
                    PER_S,
                ),
                Panel(
                    "Hard, stale, or set by hand",
                    "1 while every turn over the window is held, while the signal is too old, and while an operator's "
                    "window is in force.",
                    (
                        Query(f"concur_window_hard{B}", "{{backend}} hard"),
                        Query(f"concur_signal_stale{B}", "{{backend}} stale"),
                        Query(f"concur_window_set_by_operator{B}", "{{backend}} by hand"),
                    ),
                    kind=STATES,
                ),
                Panel(
                    "Law and mode in force",
                    "A change of law, or a switch to observe, is a step here.",
                    (Query(f"concur_policy_info{J}", "{{law}}, {{mode}}"),),
                    kind=STATES,
                    width=24,
                ),
            ),
        ),
    ),
)
