"""Is it helping?"""

from __future__ import annotations

from boards.base import (
    COUNT,
    GOOD_HIGH,
    PER_S,
    PLAIN,
    SECONDS,
    SHARE,
    STAT,
    TOKENS,
    B,
    Board,
    J,
    Panel,
    Query,
    Row,
    quantile,
    rate,
    ratio,
    recorded,
)

OVERVIEW = Board(
    "concur-overview",
    "Concur / Overview",
    "Is it helping? One look tells a healthy fleet from one that computes the same tokens again and again.",
    (
        Row(
            "Is it helping?",
            (
                Panel(
                    "Useful work",
                    "Share of the tokens that GPUs compute which an undisturbed cache would have needed, too. Above "
                    "85 % is healthy; at 50 % half of the hardware is wasted.",
                    (
                        Query(
                            recorded(
                                "concur:useful_share:rate5m",
                                "concur_useful_tokens_total",
                                "concur_computed_tokens_total",
                            )
                        ),
                    ),
                    SHARE,
                    STAT,
                    4,
                    steps=GOOD_HIGH,
                ),
                Panel(
                    "Hit rate",
                    "Share of prompt tokens found in the cache. Agents reach 80 % and more; what is possible depends "
                    "on how much each turn adds.",
                    (
                        Query(
                            recorded(
                                "concur:hit_ratio:rate5m",
                                "concur_cached_prompt_tokens_total",
                                "concur_measured_prompt_tokens_total",
                            )
                        ),
                    ),
                    SHARE,
                    STAT,
                    4,
                    steps=((None, "red"), (0.5, "orange"), (0.75, "green")),
                ),
                Panel(
                    "Generated tokens per second",
                    "What the fleet delivers. Compare it with the day before, at the same number of agents.",
                    (Query(rate("concur_completion_tokens_total")),),
                    TOKENS,
                    STAT,
                    4,
                    steps=PLAIN,
                ),
                Panel(
                    "Agents active",
                    "Sessions that hold a place: they run, or their contexts are kept for them during a tool call.",
                    (Query(f"sum(concur_sessions_active{B})"),),
                    COUNT,
                    STAT,
                    4,
                    steps=PLAIN,
                ),
                Panel(
                    "Turns held",
                    "Turns that wait for a place. Some are the point of the exercise; more and more of them mean too "
                    "few engines.",
                    (Query(f"sum(concur_turns_held{J})"),),
                    COUNT,
                    STAT,
                    4,
                    steps=PLAIN,
                ),
                Panel(
                    "Longest wait",
                    "Age of the queue. It should stay well below gate.max_wait_s, at which turns are refused.",
                    (Query(f"max(concur_longest_wait_seconds{J})"),),
                    SECONDS,
                    STAT,
                    4,
                    steps=((None, "green"), (60, "orange"), (300, "red")),
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Tokens per second",
                    "Computed is what the GPUs do, useful what they had to do. The gap between them is context that "
                    "was evicted and prefilled again; it opens when more agents are active than fit.",
                    (
                        Query(rate("concur_computed_tokens_total"), "computed"),
                        Query(rate("concur_useful_tokens_total"), "useful"),
                        Query(rate("concur_completion_tokens_total"), "generated"),
                    ),
                    TOKENS,
                    width=6,
                ),
                Panel(
                    "Prompt tokens per second",
                    "What agents send: all of it, and what the cache already had. The distance between the two is "
                    "prefill.",
                    (
                        Query(rate("concur_prompt_tokens_total"), "prompt"),
                        Query(rate("concur_cached_prompt_tokens_total"), "cached"),
                    ),
                    TOKENS,
                    width=6,
                ),
                Panel(
                    "Hit rate",
                    "Found is what the cache gave, possible what an undisturbed one would have given. Close together: "
                    "healthy. Found falls away: thrashing.",
                    (
                        Query(
                            ratio("concur_cached_prompt_tokens_total", "concur_measured_prompt_tokens_total"), "found"
                        ),
                        Query(f"avg(concur_expected_hit_ratio{B})", "possible"),
                    ),
                    SHARE,
                    top=1,
                    width=6,
                ),
                Panel(
                    "Recomputed share",
                    "Share of all computed tokens that had been computed before. Below 10 % is normal; above 25 % for "
                    "long raises ConcurThrashing.",
                    (Query(ratio("concur_evicted_tokens_total", "concur_computed_tokens_total"), "recomputed"),),
                    SHARE,
                    top=1,
                    width=6,
                ),
            ),
        ),
        Row(
            "Admission",
            (
                Panel(
                    "Window against active agents",
                    "The law's window, in agents; one that counts tokens is shown as agents of the present size that "
                    "fit it. Active at the window while turns are held: it binds. Active far below it: there is "
                    "nothing to control. No line: nothing is ever held.",
                    (
                        Query(
                            'sum(concur_window{job=~"$job",backend=~"$backend",unit="sessions"} < +Inf) or '
                            'sum(concur_window{job=~"$job",backend=~"$backend",unit="tokens"} < +Inf) '
                            f"* sum(concur_sessions_active{B}) / sum(concur_footprint_tokens{B} > 0)",
                            "window",
                        ),
                        Query(f"sum(concur_sessions_active{B})", "active"),
                        Query(f"sum(concur_turns_running{B})", "running"),
                    ),
                ),
                Panel(
                    "Contexts against the cache",
                    "Tokens that active agents' contexts occupy, over what the caches hold. Around 100 % the cache is "
                    "used and nothing is lost; far above, every agent evicts another.",
                    (
                        Query(
                            f"sum(concur_footprint_tokens{B}) / sum(max by (backend) (concur_capacity_tokens{B}))",
                            "active contexts",
                        ),
                        Query(f"avg(concur_kv_usage_ratio{B})", "what the engine calls usage"),
                    ),
                    SHARE,
                ),
                Panel(
                    "Where agents are",
                    "Running, in a tool call with a place, or waiting: paused ones have run before. Waiting agents "
                    "cost nothing; active ones that do not fit cost everybody.",
                    (
                        Query(f"sum(concur_turns_running{B})", "running"),
                        Query(f"sum(concur_sessions_idle{B})", "in a tool call"),
                        Query(f"sum(concur_turns_held_paused{J})", "held, paused"),
                        Query(f"sum(concur_turns_held{J}) - sum(concur_turns_held_paused{J})", "held, new"),
                    ),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "What agents feel",
            (
                Panel(
                    "Time to first token, p95",
                    "With and without the wait in the gate. Thrashing shows in the engine's part: long prefills and a "
                    "long queue inside the engine.",
                    (
                        Query(quantile(0.95, "concur_time_to_first_token_seconds"), "with the gate"),
                        Query(quantile(0.95, "concur_engine_first_token_seconds"), "engine alone"),
                    ),
                    SECONDS,
                ),
                Panel(
                    "Wait in the gate",
                    "Most turns should not wait at all: those of active sessions pass. A high p50 means that agents "
                    "lose their places between turns.",
                    (
                        Query(quantile(0.5, "concur_queue_wait_seconds"), "p50"),
                        Query(quantile(0.95, "concur_queue_wait_seconds"), "p95"),
                        Query(f"max(concur_longest_wait_seconds{J})", "longest now"),
                    ),
                    SECONDS,
                ),
                Panel(
                    "Turns finished and refused",
                    "Finished turns per second are the fleet's progress. Refused ones are agents that were sent away.",
                    (
                        Query(
                            'sum(rate(concur_turns_finished_total{job=~"$job",backend=~"$backend",'
                            'outcome="completed"}[$__rate_interval]))',
                            "completed",
                        ),
                        Query(rate("concur_turns_refused_total", J), "refused"),
                    ),
                    PER_S,
                ),
            ),
        ),
    ),
)
