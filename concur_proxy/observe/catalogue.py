"""Every metric: its name, unit, help text, labels and where its value comes from. docs/metrics.md is made of this.

Labels come from fixed sets, from the operator's own backends and from what engines list, never from clients
(invariant 9); tenants only where the operator asks for them, as many as he says. What is not known has no sample:
unknown is not zero. A name carries its unit.
"""

from __future__ import annotations

import platform

from concur_proxy import __version__
from concur_proxy.model import AdmitWhy, ColdLane, RefusalReason
from concur_proxy.observe import families as of
from concur_proxy.observe.families import BACKEND, SERVED, Chapter, Family, HistogramFamily

REQUESTS = Chapter(
    "Requests",
    "What clients asked and what they got.",
    (
        Family(
            "concur_requests_total",
            "",
            "Requests answered on a forwarded path. outcome says how: completed, client_error, overloaded, "
            "engine_error, cancelled, backend_lost, timed_out, shutdown, abandoned while held, or a refusal's code.",
            ("backend", "kind", "status", "outcome"),
            of.requests,
        ),
        HistogramFamily(
            "concur_request_duration_seconds",
            "From a request's arrival to the end of its answer, the wait in the gate included.",
            SERVED,
            of.served(lambda s: s.duration),
        ),
        HistogramFamily(
            "concur_queue_wait_seconds",
            "Time that turns waited in the gate; calls that do not pass it, such as embeddings, do not count.",
            SERVED,
            of.served(lambda s: s.queued),
        ),
        HistogramFamily(
            "concur_time_to_first_token_seconds",
            "From arrival to the first byte of generated text, the wait in the gate included.",
            SERVED,
            of.served(lambda s: s.first_token),
        ),
        HistogramFamily(
            "concur_engine_first_token_seconds",
            "The same without the wait in the gate: what the engine took, its own queue and the prefill.",
            SERVED,
            of.served(lambda s: s.engine_first_token),
        ),
        HistogramFamily(
            "concur_think_time_seconds",
            "Time between an answer and the session's next turn: the agent's tool call.",
            BACKEND,
            of.thinking,
        ),
        Family(
            "concur_session_ids_rejected_total",
            "",
            "Requests with a session id that is too long or not printable; they were served without it.",
            (),
            lambda _, t: [((), t.rejected_ids)],
        ),
        Family(
            "concur_requests_open",
            "",
            "Requests on their way now, held or running, on all forwarded paths.",
            (),
            lambda f, _: [((), f.requests_open)],
        ),
    ),
)

TOKENS = Chapter(
    "Tokens",
    "What the engines were paid for. Cached tokens need engines that tell them in `usage`; those that do not make no "
    "sample of what follows from them.",
    (
        Family(
            "concur_prompt_tokens_total",
            "tokens",
            "Prompt tokens by the usage of answers.",
            BACKEND,
            of.spent(lambda s: s.prompt),
        ),
        Family(
            "concur_completion_tokens_total",
            "tokens",
            "Generated tokens likewise; the rate is the fleet's throughput.",
            BACKEND,
            of.spent(lambda s: s.completion),
        ),
        Family(
            "concur_measured_prompt_tokens_total",
            "tokens",
            "Prompt tokens in answers that also told how many of them were cached: the divisor for the next one.",
            BACKEND,
            of.spent(lambda s: s.measured),
        ),
        Family(
            "concur_cached_prompt_tokens_total",
            "tokens",
            "Prompt tokens that the engine had in its cache; over the one above it is the hit rate of any time.",
            BACKEND,
            of.spent(lambda s: s.cached),
        ),
        Family(
            "concur_computed_tokens_total",
            "tokens",
            "Tokens that engines prefilled or generated for turns: prompt without its cached part, and completion.",
            BACKEND,
            of.work(lambda w: w.computed),
        ),
        Family(
            "concur_useful_tokens_total",
            "tokens",
            "Those of them that an undisturbed cache would have needed, too: the rate is what the GPUs really achieve.",
            BACKEND,
            of.work(lambda w: w.useful),
        ),
        Family(
            "concur_evicted_tokens_total",
            "tokens",
            "The rest: prompt tokens that should have been cached, by the session's history, and were computed again "
            "(estimate).",
            BACKEND,
            of.work(lambda w: w.evicted),
        ),
        Family(
            "concur_expected_cached_tokens_total",
            "tokens",
            "Prompt tokens of returning sessions that an undisturbed cache would have had.",
            BACKEND,
            of.work(lambda w: w.expected),
        ),
        Family(
            "concur_turn_hit_ratio",
            "ratio",
            "Cached over all prompt tokens of about the last 50 turns, as their answers tell: without a scrape's "
            "delay, and of this proxy's turns only.",
            BACKEND,
            of.spent(lambda s: s.recent_hit_rate),
        ),
        Family(
            "concur_expected_hit_ratio",
            "ratio",
            "What an undisturbed cache would have made of it: the distance to the one above is what eviction costs.",
            BACKEND,
            of.work(lambda w: w.recent_expected_hit_rate),
        ),
    ),
)

GATE = Chapter(
    "The gate",
    "Who was let in, who waits, who was turned away. Turns arrived are those admitted at least once, held, refused or "
    "abandoned.",
    (
        Family("concur_turns_arrived_total", "", "Turns that reached the gate.", (), of.one(lambda g: g.arrived)),
        Family(
            "concur_turns_admitted_total",
            "",
            "Turns let through: window there was room; warm over a shrunk window, but still cached; oversize larger "
            "than the whole window, alone; forced after the longest wait; observed would have been held. One that "
            "was put back in line counts again.",
            ("why",),
            of.each(AdmitWhy, lambda g: g.admitted_by),
        ),
        Family(
            "concur_turns_finished_total",
            "",
            "Turns that gave their place back, by how they ended.",
            ("backend", "outcome"),
            lambda _, t: (((backend, outcome.value), count) for (backend, outcome), count in t.finished.items()),
        ),
        Family(
            "concur_turns_refused_total",
            "",
            "Turns that the gate refused: queue_timeout, queue_full, no_backend, shutting_down, replica_cut_off, "
            "batch_paused, or what limits a tenant: too_many_sessions, too_many_held, turn_rate_limit, "
            "token_rate_limit.",
            ("reason",),
            of.each(RefusalReason, lambda g: g.refused),
        ),
        Family(
            "concur_turns_abandoned_total",
            "",
            "Turns whose client left while they were held.",
            (),
            of.one(lambda g: g.abandoned),
        ),
        Family(
            "concur_turns_requeued_total",
            "",
            "Turns put back in line, their place kept, because their backend was full or lost.",
            (),
            of.one(lambda g: g.requeued),
        ),
        Family("concur_turns_held", "", "Turns that wait for a place now.", (), of.one(lambda g: g.held)),
        Family(
            "concur_turns_held_paused",
            "",
            "Those of them whose sessions have run before: paused agents, the others are new.",
            (),
            of.one(lambda g: g.held_paused),
        ),
        Family(
            "concur_pool_turns_held",
            "",
            "Turns that stand in line for one pool; concur_model_info names its backends and models.",
            ("pool",),
            of.held_by_pool,
        ),
        Family(
            "concur_longest_wait_seconds",
            "seconds",
            "Age of the queue: how long the turn that was held first has stood in line; 0 where nobody waits.",
            (),
            of.one(lambda g: g.longest_wait_s or 0.0),
        ),
        HistogramFamily(
            "concur_lane_wait_seconds",
            "Time in the gate by lane, refused turns apart: cold is what clients marked as less urgent than usual.",
            ("lane",),
            of.lanes,
        ),
        Family(
            "concur_lane_refusals_total",
            "",
            "Turns of each lane that were refused.",
            ("lane",),
            lambda _, t: [(("hot",), t.hot.refused), (("cold",), t.cold.refused)],
        ),
        Family(
            "concur_hot_first_token_seconds",
            "seconds",
            "p99 of the time to the first token of interactive turns in the last window (gate.hot_window_s), where "
            "they have an objective (gate.hot_objective_s).",
            ("pool",),
            of.hot_p99,
        ),
        Family(
            "concur_cold_lane_held",
            "",
            "What becomes of batch work where interactive turns have an objective: 0 it goes on, 1 it is held back, "
            "2 it is refused.",
            ("pool",),
            of.cold_lanes,
        ),
        Family(
            "concur_cold_lane_changes_total",
            "",
            "How often batch work came to be held, refused, and let on again (open).",
            ("state",),
            lambda f, _: (((state.value,), f.gate.cold_lane_changes.get(state, 0)) for state in ColdLane),
        ),
        Family("concur_turns_running", "", "Leases: turns in flight.", BACKEND, of.places(lambda b: b.running)),
        Family(
            "concur_background_leases",
            "",
            "Leases of background responses, whose requests have been answered already.",
            (),
            lambda f, _: [((), f.background_leases)],
        ),
        Family(
            "concur_sessions_active",
            "",
            "Sessions that hold a place: with a turn in flight, or between two.",
            BACKEND,
            of.places(lambda b: b.active),
        ),
        Family(
            "concur_sessions_idle",
            "",
            "Those of them that are between two turns, mostly in a tool call.",
            BACKEND,
            of.places(lambda b: b.idle),
        ),
        Family(
            "concur_sessions_known",
            "",
            "Sessions that are remembered, with a place or without.",
            (),
            of.one(lambda g: g.sessions),
        ),
        Family(
            "concur_lineage_sessions",
            "",
            "Sessions that are known by what they have said; no sample with sessions.lineage: false.",
            (),
            of.fact(lambda f: f.lineage_sessions),
        ),
        Family(
            "concur_lineage_bytes",
            "bytes",
            "Memory for that, of sessions.lineage_memory_bytes at most.",
            (),
            of.fact(lambda f: f.lineage_bytes),
        ),
        Family(
            "concur_session_pauses_total",
            "",
            "Sessions that lost their place between two turns, and came back to a line.",
            (),
            of.one(lambda g: g.paused),
        ),
        Family(
            "concur_session_resumptions_total",
            "",
            "Paused sessions that got a place again.",
            (),
            of.one(lambda g: g.resumed),
        ),
        Family(
            "concur_places_reclaimed_total",
            "",
            "Idle places taken back before their lease ended, because turns waited beside an idle engine.",
            (),
            of.one(lambda g: g.reclaimed),
        ),
        Family(
            "concur_lease_expiries_total",
            "",
            "Idle sessions that lost their place because no turn came in time; many, followed by pauses: raise "
            "gate.lease_max_s.",
            (),
            of.one(lambda g: g.leases_expired),
        ),
    ),
)

WINDOW = Chapter(
    "The window and its law",
    "How much may be active, and why.",
    (
        Family(
            "concur_window",
            "",
            "How much may be active, in the law's unit, sessions or tokens; +Inf where nothing is held.",
            ("backend", "unit"),
            lambda f, _: (((b.id, b.unit.value), b.window) for b in f.gate.backends.values()),
        ),
        Family("concur_window_min", "", "Its lower bound, in that unit.", BACKEND, of.places(lambda b: b.minimum)),
        Family("concur_window_max", "", "Its upper bound; +Inf for none.", BACKEND, of.places(lambda b: b.maximum)),
        Family(
            "concur_window_hard",
            "",
            "1 while every turn over the window is held; 0 while those whose context is still cached pass.",
            BACKEND,
            of.places(lambda b: b.hard),
        ),
        Family(
            "concur_window_set_by_operator",
            "",
            "1 while the window was set by hand, and the law does not move it.",
            BACKEND,
            of.engines(lambda e: e.set_by_operator),
        ),
        Family(
            "concur_window_changes_total",
            "",
            "Changes of the window up and down.",
            ("backend", "direction"),
            of.moves,
        ),
        Family(
            "concur_policy_info",
            "",
            "1 for the law and the mode (enforce or observe) in force.",
            ("law", "mode"),
            lambda f, _: [((f.law, f.mode), 1)],
        ),
        Family(
            "concur_law_value",
            "",
            "What the law knows and goes by, such as its congestion signal or its predicted_hit_rate; docs/laws.md "
            "explains each name.",
            ("backend", "name"),
            of.law_values,
        ),
        Family(
            "concur_law_parameter",
            "",
            "What the law was told to go by: thresholds, factors and periods of its section of the configuration.",
            ("name",),
            of.law_parameters,
        ),
        Family(
            "concur_footprint_tokens",
            "tokens",
            "KV tokens that active sessions occupy by the proxy's own ledger, shared prefixes once.",
            BACKEND,
            of.places(lambda b: b.footprint_tokens),
        ),
        Family(
            "concur_capacity_tokens",
            "tokens",
            "Tokens that the engine's KV cache holds; a footprint above it means that contexts are being evicted.",
            BACKEND,
            of.places(lambda b: b.capacity_tokens),
        ),
        Family(
            "concur_cache_tokens",
            "tokens",
            "KV cache that seems to be there for our sessions, by what was found in it; far below the capacity: other "
            "clients, fragmentation, or an engine that promises more than it has.",
            BACKEND,
            of.places(lambda b: b.cache_tokens),
        ),
    ),
)

ENGINES = Chapter(
    "What the engines say",
    "Read from their own metrics, or seen by probes.",
    (
        Family("concur_backend_up", "", "1 while the backend takes turns, else 0.", BACKEND, of.places(lambda b: b.up)),
        Family(
            "concur_backend_state",
            "",
            "1 for the state in force. resting is the circuit breaker: its health page is good, but turns fail there.",
            ("backend", "state"),
            of.states,
        ),
        Family(
            "concur_model_info",
            "",
            "1 for each model that a backend lists, as many as are told apart; for joins.",
            ("backend", "pool", "model"),
            of.models,
        ),
        Family(
            "concur_kv_usage_ratio",
            "ratio",
            "Share of KV blocks that running requests hold, as the engine says. Contexts of agents in a tool call "
            "count as free: it looks harmless long after the cache is too small.",
            BACKEND,
            of.engines(lambda e: e.signals.kv_usage),
        ),
        Family(
            "concur_engine_hit_ratio",
            "ratio",
            "Cached over processed prompt tokens between the two newest samples, as the engine counts.",
            BACKEND,
            of.engines(lambda e: e.signals.hit_rate),
        ),
        Family(
            "concur_engine_running",
            "",
            "Requests that the engine runs, other clients' included.",
            BACKEND,
            of.engines(lambda e: e.signals.running),
        ),
        Family(
            "concur_engine_waiting",
            "",
            "Requests queued inside the engine: past the gate, and not served yet.",
            BACKEND,
            of.engines(lambda e: e.signals.waiting),
        ),
        Family(
            "concur_engine_preemptions",
            "",
            "Requests that the engine preempted or retracted within the newest interval.",
            BACKEND,
            of.engines(lambda e: e.signals.preemptions),
        ),
        Family(
            "concur_engine_rejections",
            "",
            "Requests that the engine refused (429, 503 or 529) within the newest interval.",
            BACKEND,
            of.engines(lambda e: e.signals.rejections),
        ),
        Family(
            "concur_signal_age_seconds",
            "seconds",
            "Age of the engine's newest sample; none before the first.",
            BACKEND,
            of.engines(lambda e: of.finite(e.signals.age_s)),
        ),
        Family(
            "concur_signal_stale",
            "",
            "1 while samples are older than control.stale_after_s: the window is frozen, later it decays to its first "
            "value.",
            BACKEND,
            of.stale,
        ),
        Family(
            "concur_scrapes_total",
            "",
            "Reads of an engine's metrics, ok or failed; concur-proxy status says why they fail.",
            ("backend", "result"),
            lambda _, t: (((backend, "failed" if bad else "ok"), count) for (backend, bad), count in t.scrapes.items()),
        ),
    ),
)

SHARES = Chapter(
    "By model and by tenant",
    "Models are those that engines list, 100 at most; what is beyond counts as `other`, whatever clients ask for. "
    "Tenants are told apart only where `metrics.max_tenants` says how many.",
    (
        Family(
            "concur_model_requests_total",
            "",
            "Requests that name the model.",
            ("model",),
            of.shares(lambda t: t.models, lambda s: s.requests),
        ),
        Family(
            "concur_model_tokens_total",
            "tokens",
            "Tokens in answers of the model: prompt, cached (a part of prompt) and completion.",
            ("model", "type"),
            of.share_tokens(lambda t: t.models),
        ),
        Family(
            "concur_tenant_requests_total",
            "",
            "Requests of the tenant.",
            ("tenant",),
            of.shares(lambda t: t.tenants, lambda s: s.requests),
        ),
        Family(
            "concur_tenant_refusals_total",
            "",
            "Turns of the tenant that were refused.",
            ("tenant",),
            of.shares(lambda t: t.tenants, lambda s: s.refused),
        ),
        Family(
            "concur_tenant_queue_wait_seconds_total",
            "seconds",
            "Time that the tenant's turns have spent in the gate, all together.",
            ("tenant",),
            of.shares(lambda t: t.tenants, lambda s: s.queued_s),
        ),
        Family(
            "concur_tenant_tokens_total",
            "tokens",
            "Tokens in the tenant's answers: prompt, cached (a part of prompt) and completion.",
            ("tenant", "type"),
            of.share_tokens(lambda t: t.tenants),
        ),
    ),
)

REPLICAS = Chapter(
    "Replicas",
    "Where several replicas share their state ([replicas](replicas.md)); no samples where this proxy is the only one.",
    (
        Family(
            "concur_state_up",
            "",
            "1 while Redis answers. 0: this replica goes on with its share of the last windows, and the law rests.",
            (),
            of.replicas(lambda s: s.up),
        ),
        Family(
            "concur_state_leader",
            "",
            "1 at the one replica that runs the law; their sum is 1, or 0 for some seconds after one has died.",
            (),
            of.replicas(lambda s: s.leads),
        ),
        Family(
            "concur_state_replicas",
            "",
            "Replicas that this one knows of, itself included.",
            (),
            of.replicas(lambda s: s.replicas),
        ),
        Family(
            "concur_session_claims_total",
            "",
            "Turns whose session was not this replica's and had to be asked for; late: they went on before the answer.",
            ("result",),
            of.claims,
        ),
        Family(
            "concur_sessions_moved_total",
            "",
            "Sessions that have come here from other replicas, their places with them.",
            (),
            of.replicas(lambda s: s.moved),
        ),
        Family(
            "concur_window_whole",
            "",
            "Window of all replicas together, in the law's unit; concur_window is the share of one.",
            BACKEND,
            of.whole_windows,
        ),
    ),
)

PROXY = Chapter(
    "The proxy itself",
    "The usual `process_` metrics (memory, CPU time, open files) stand beside them.",
    (
        Family(
            "concur_upstream_connections",
            "",
            "Connections to the backend: busy with a request, or idle, kept for the next one.",
            ("backend", "state"),
            of.connections,
        ),
        Family(
            "concur_connection_retries_total",
            "",
            "Requests sent again because a kept connection had died before any byte of an answer; a few are normal.",
            BACKEND,
            of.engines(lambda e: e.connection_retries),
        ),
        Family(
            "concur_repeats_total",
            "",
            "Requests that an engine failed: sent_again before any byte of an answer, resumed from another engine in "
            "the middle of a stream, or over_budget for either (upstream.retry_budget).",
            ("result",),
            lambda f, _: [((result,), count) for result, count in f.repeats.items()],
        ),
        Family(
            "concur_relay_bytes_total",
            "bytes",
            "Bytes sent to and received from the backend by its connections, heads and framing included.",
            ("backend", "direction"),
            of.relayed,
        ),
        HistogramFamily(
            "concur_event_loop_lag_seconds",
            "How late the event loop was, four times a second: more than some 10 ms and every stream stutters.",
            (),
            of.lag,
        ),
        Family(
            "concur_build_info",
            "",
            "Always 1: version, Python, and whether the data path runs compiled.",
            ("version", "python", "compiled"),
            lambda f, _: [((__version__, platform.python_version(), str(f.compiled).lower()), 1)],
        ),
    ),
)

CHAPTERS = (REQUESTS, TOKENS, GATE, WINDOW, ENGINES, SHARES, REPLICAS, PROXY)
FAMILIES = tuple(family for chapter in CHAPTERS for family in chapter.families)
NAMES = tuple(family.name for family in FAMILIES)
