"""Who asks, who waits, who is turned away."""

from __future__ import annotations

from boards.base import HEAT, PER_S, SECONDS, SHARE, TOKENS, B, Board, J, Panel, Query, Row, quantile, rate

CLIENTS = Board(
    "concur-clients",
    "Concur / Clients and queues",
    "What clients ask, how long they wait, and who is turned away.",
    (
        Row(
            "Requests",
            (
                Panel(
                    "Requests per second by kind",
                    "Families of paths: chat, responses, messages, embeddings.",
                    (Query(rate("concur_requests_total", by="kind"), "{{kind}}"),),
                    PER_S,
                ),
                Panel(
                    "Requests per second by outcome",
                    "client_error is theirs, engine_error and backend_lost are ours.",
                    (Query(rate("concur_requests_total", by="outcome"), "{{outcome}}"),),
                    PER_S,
                ),
                Panel(
                    "Statuses per second",
                    "4xx with 429 in it: see refusals below.",
                    (Query(rate("concur_requests_total", by="status"), "{{status}}"),),
                    PER_S,
                ),
                Panel(
                    "Duration of requests",
                    "With the wait in the gate.",
                    (
                        Query(quantile(0.5, "concur_request_duration_seconds", by="kind"), "{{kind}} p50"),
                        Query(quantile(0.95, "concur_request_duration_seconds", by="kind"), "{{kind}} p95"),
                    ),
                    SECONDS,
                ),
                Panel(
                    "Think time",
                    "Between an answer and the session's next turn. Places are kept for about that long.",
                    (
                        Query(quantile(0.5, "concur_think_time_seconds"), "p50"),
                        Query(quantile(0.95, "concur_think_time_seconds"), "p95"),
                    ),
                    SECONDS,
                ),
                Panel(
                    "Session ids that were passed over",
                    "Too long or not printable, per second: a client that builds them wrongly.",
                    (Query(rate("concur_session_ids_rejected_total", J), "rejected"),),
                    PER_S,
                ),
            ),
        ),
        Row(
            "The queue",
            (
                Panel(
                    "Held turns by pool",
                    "Pools are sets of interchangeable backends; each has a line of its own.",
                    (Query(f"sum by (pool) (concur_pool_turns_held{J})", "{{pool}}"),),
                ),
                Panel(
                    "Held, new and paused",
                    "Paused agents were active, lost their place and want it back; they go before new ones.",
                    (
                        Query(f"sum(concur_turns_held{J}) - sum(concur_turns_held_paused{J})", "new"),
                        Query(f"sum(concur_turns_held_paused{J})", "paused"),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Waiting times",
                    "How many turns waited how long. A second band far to the top: agents that lose their places.",
                    (
                        Query(
                            f"sum by (le) (increase(concur_queue_wait_seconds_bucket{B}[$__rate_interval]))", "{{le}}"
                        ),
                    ),
                    SECONDS,
                    HEAT,
                ),
                Panel(
                    "Arrived and admitted per second",
                    "Why turns were let in: window there was room, warm over a shrunk window, but still cached.",
                    (
                        Query(rate("concur_turns_arrived_total", J), "arrived"),
                        Query(rate("concur_turns_admitted_total", J, "why"), "{{why}}"),
                    ),
                    PER_S,
                ),
                Panel(
                    "Refused and abandoned per second",
                    "queue_timeout: waited too long. queue_full: gate.max_held. Abandoned: the client gave up first.",
                    (
                        Query(rate("concur_turns_refused_total", J, "reason"), "{{reason}}"),
                        Query(rate("concur_turns_abandoned_total", J), "abandoned"),
                    ),
                    PER_S,
                ),
                Panel(
                    "Places lost and won per second",
                    "Pauses and resumptions in step are normal. Expiries followed by pauses: raise gate.lease_max_s.",
                    (
                        Query(rate("concur_session_pauses_total", J), "paused"),
                        Query(rate("concur_session_resumptions_total", J), "resumed"),
                        Query(rate("concur_places_reclaimed_total", J), "taken back"),
                        Query(rate("concur_lease_expiries_total", J), "lease expired"),
                    ),
                    PER_S,
                ),
            ),
        ),
        Row(
            "Lanes and tenants",
            (
                Panel(
                    "Wait by lane, p95",
                    "hot is interactive work, cold what clients marked as less urgent. Hot should not wait (order "
                    "lanes).",
                    (Query(quantile(0.95, "concur_lane_wait_seconds", J, "lane"), "{{lane}}"),),
                    SECONDS,
                ),
                Panel(
                    "Hot turns within their objective",
                    "Share that waited at most 5 s and was not refused. The alerts on its error budget aim at 99 %.",
                    (
                        Query(
                            '(sum(rate(concur_lane_wait_seconds_bucket{job=~"$job",lane="hot",le="5.0"}[$__rate_interval])))'
                            ' / (sum(rate(concur_lane_wait_seconds_count{job=~"$job",lane="hot"}[$__rate_interval]))'
                            ' + sum(rate(concur_lane_refusals_total{job=~"$job",lane="hot"}[$__rate_interval])))',
                            "within 5 s",
                        ),
                    ),
                    SHARE,
                    top=1,
                ),
                Panel(
                    "Refusals by lane per second",
                    "Refused hot turns are people who see an error.",
                    (Query(rate("concur_lane_refusals_total", J, "lane"), "{{lane}}"),),
                    PER_S,
                ),
                Panel(
                    "Interactive turns' first token, p99",
                    "Where gate.hot_objective_s sets an objective for it: above it, batch work is held back.",
                    (Query(f"concur_hot_first_token_seconds{J}", "{{pool}}"),),
                    SECONDS,
                ),
                Panel(
                    "What becomes of batch work",
                    "0 it goes on, 1 it is held back for interactive turns, 2 it is refused.",
                    (Query(f"concur_cold_lane_held{J}", "{{pool}}"),),
                ),
                Panel(
                    "Changes of that per second",
                    "Many: the objective lies just where the engines' limit is.",
                    (Query(rate("concur_cold_lane_changes_total", J, "state"), "{{state}}"),),
                    PER_S,
                ),
                Panel(
                    "Requests by tenant per second",
                    "Where metrics.max_tenants is set; those beyond it are other.",
                    (Query(rate("concur_tenant_requests_total", J, "tenant"), "{{tenant}}"),),
                    PER_S,
                    width=6,
                ),
                Panel(
                    "Tokens by tenant per second",
                    "Who uses the GPUs.",
                    (Query(rate("concur_tenant_tokens_total", J, "tenant,type"), "{{tenant}} {{type}}"),),
                    TOKENS,
                    width=6,
                ),
                Panel(
                    "Wait by tenant",
                    "Mean time in the gate per request. One far above the others in the order fair: it asks for more "
                    "than its share.",
                    (
                        Query(
                            f"{rate('concur_tenant_queue_wait_seconds_total', J, 'tenant')} / "
                            f"{rate('concur_tenant_requests_total', J, 'tenant')}",
                            "{{tenant}}",
                        ),
                    ),
                    SECONDS,
                    width=6,
                ),
                Panel(
                    "Refusals by tenant per second",
                    "Who is turned away.",
                    (Query(rate("concur_tenant_refusals_total", J, "tenant"), "{{tenant}}"),),
                    PER_S,
                    width=6,
                ),
            ),
        ),
        Row(
            "Sessions",
            (
                Panel(
                    "Sessions remembered",
                    "Up to gate.max_sessions; those unheard of for longest are forgotten.",
                    (
                        Query(f"sum(concur_sessions_known{J})", "known"),
                        Query(f"sum(concur_lineage_sessions{J})", "of them by what they have said"),
                    ),
                    width=12,
                ),
                Panel(
                    "Memory for sessions without a name",
                    "Up to sessions.lineage_memory_bytes; at the bound those unheard of for longest are forgotten.",
                    (Query(f"sum(concur_lineage_bytes{J})", "lineage"),),
                    "bytes",
                    width=12,
                ),
            ),
        ),
    ),
)
