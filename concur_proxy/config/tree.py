"""The one settings tree: each setting, its bounds, its default and its help text stand here and nowhere else.

``config.load`` fills it. Precedence: command line flags > ``CONCUR_...`` environment (``CONCUR_GATE__MAX_WAIT_S=60``)
> YAML file > defaults.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from concur_proxy.config.types import (
    BackendName,
    BackendUrl,
    EventsUrl,
    HeaderName,
    IdentityUrl,
    MetricsUrl,
    PathPattern,
    PlainUrl,
    Seconds,
    Secret,
    SecretText,
    Share,
    StateUrl,
    events_url_of,
)
from concur_proxy.model import BackendId

SectionT = TypeVar("SectionT", bound="Section")


class Section(BaseModel):
    """A part of the tree: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _a_truth_value_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads ``yes`` and ``on`` as true, which Python counts as 1."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and annotation is not bool and bool not in get_args(annotation):
            raise ValueError("is true or false, which this setting is not")
        return value

    @model_validator(mode="before")
    @classmethod
    def _an_empty_section_is_all_defaults(cls, value: object) -> object:
        """A YAML section whose lines are all commented out reads as null."""
        return {} if value is None else value


def _ordered(section: SectionT, low: str, high: str) -> SectionT:
    """Refuse a section whose ``low`` is above its ``high``; None means no bound."""
    least, most = getattr(section, low), getattr(section, high)
    if most is not None and least > most:
        raise ValueError(f"{low} = {least:g} must not be above {high} = {most:g}")
    return section


class EngineKind(StrEnum):
    AUTO = "auto"
    VLLM = "vllm"
    SGLANG = "sglang"
    NONE = "none"


class Priorities(StrEnum):
    AS_SENT = "as_sent"
    LOWER_FIRST = "lower_first"
    HIGHER_FIRST = "higher_first"


class BackendSettings(Section):
    url: BackendUrl = Field(description="Base URL of the engine: http://10.0.0.5:8000, https://... or unix:/path.")
    name: BackendName | None = Field(None, description="Name in metrics and headers; default: host:port.")
    kind: EngineKind = Field(EngineKind.AUTO, description="Which engine's metrics to expect; auto detects it.")
    metrics_url: MetricsUrl | None = Field(None, description="Where its metrics are; default: the URL's /metrics.")
    kv_events_url: EventsUrl | None = Field(
        None,
        description="Where it publishes its KV events, such as tcp://10.0.0.5:5557 (vLLM: --kv-events-config, with "
        "sessions told by X-Session-ID): the shadow of its cache follows them. Needs the extra kv-events.",
    )
    kv_tokens: int | None = Field(
        None, ge=256, le=10**12, description="KV cache capacity in tokens, where the engine does not tell it."
    )
    api_key: Secret | None = Field(
        None,
        description="Bearer token of the engine. Probes carry it; requests, too, where `auth` is on (they keep the "
        "client's own where it is off).",
    )
    ca_file: str | None = Field(
        None, min_length=1, description="CA certificates (PEM) that sign its https certificate; default: the system's."
    )
    cert_file: str | None = Field(
        None, min_length=1, description="Certificate chain (PEM) to show to an engine that asks for one."
    )
    key_file: str | None = Field(None, min_length=1, description="Its key (PEM, not encrypted).")
    insecure: bool = Field(
        False, description="Take any https certificate: whoever is on the way can read and change everything."
    )

    priorities: Priorities = Field(
        Priorities.AS_SENT,
        description="How turns' priorities reach an engine that schedules by them: lower_first (vLLM with "
        "--scheduling-policy priority), higher_first (SGLang with --enable-priority-scheduling), or as_sent by clients "
        "(docs/queues.md).",
    )
    data_parallel_size: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Data-parallel ranks behind this URL, of an engine that honours X-data-parallel-rank (vLLM): each "
        "becomes a backend of its own, to which turns are pinned.",
    )
    data_parallel_rank: int | None = Field(
        None, ge=0, le=1023, description="The one rank that this backend is; data_parallel_size makes one of each."
    )

    @property
    def ranks(self) -> tuple[BackendSettings, ...]:
        """The backends that this stands for: itself, or one for each rank."""
        if self.data_parallel_size is None:
            return (self,)
        return tuple(
            self.model_copy(
                update={
                    "name": f"{self.id}/dp{rank}",
                    "data_parallel_rank": rank,
                    "data_parallel_size": None,
                    "kv_events_url": self.kv_events_url and events_url_of(self.kv_events_url, rank),
                }
            )
            for rank in range(self.data_parallel_size)
        )

    @model_validator(mode="after")
    def _ranks_in_one_way(self) -> Self:
        if self.data_parallel_size is not None and self.data_parallel_rank is not None:
            raise ValueError("data_parallel_rank is of no use with data_parallel_size: take one of them")
        return self

    @model_validator(mode="after")
    def _trust_in_one_way(self) -> Self:
        if (self.ca_file or self.insecure) and not self.uses_tls:
            raise ValueError("ca_file and insecure are for https:// URLs")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file go together")
        if self.cert_file and not self.uses_tls:
            raise ValueError("cert_file and key_file are for https:// URLs")
        if self.ca_file and self.insecure:
            raise ValueError("ca_file is of no use with insecure: take one of them")
        return self

    @property
    def uses_tls(self) -> bool:
        return any(url is not None and url.startswith("https:") for url in (self.url, self.metrics_url))

    @model_validator(mode="before")
    @classmethod
    def _a_bare_url_is_enough(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @property
    def id(self) -> BackendId:
        """The name, or what stands for the host in the URL."""
        return BackendId(self.name or urlsplit(self.url).netloc or self.url.removeprefix("unix:"))


def _distinct(backends: tuple[BackendSettings, ...]) -> tuple[BackendSettings, ...]:
    for attribute in ("url", "id"):
        seen: set[str] = set()
        for backend in backends:
            value = getattr(backend, attribute)
            if value in seen:
                raise ValueError(f"has two entries with the {'name' if attribute == 'id' else 'url'} {value}")
            seen.add(value)
    return backends


class ServerSettings(Section):
    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all.")
    port: int = Field(8080, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    max_body_bytes: int = Field(32 << 20, ge=1024, le=1 << 30, description="Larger request bodies get 413.")
    grace_s: Seconds = Field(30.0, description="After SIGTERM: how long running streams may still take.")
    max_head_bytes: int = Field(
        64 << 10, ge=4096, le=1 << 20, description="Request line and headers together; more gets 431, or 414."
    )
    max_headers: int = Field(256, ge=16, le=10_000, description="Headers of one request; more get 431.")
    max_connections: int = Field(
        20_000, ge=1, le=1_000_000, description="Client connections at once; inference on further ones gets 429."
    )
    max_connections_per_client: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Connections from one address (IPv6: one /64) at once; further ones get 429. 0: no limit, as "
        "behind a load balancer all clients share its address.",
    )
    head_timeout_s: Seconds = Field(
        30.0, description="To send a request's headers, a new connection's first one included; 0: no limit."
    )
    body_timeout_s: Seconds = Field(60.0, description="Longest silence within a request's body (408); 0: no limit.")
    body_bytes_per_s: float = Field(
        256, ge=0, le=1e9, description="A body slower than this on average, after a fair start, gets 408; 0: no limit."
    )
    idle_timeout_s: Seconds = Field(
        620.0,
        description="Connections idle for longer are closed. Longer than the pools of clients (90 s) and of load "
        "balancers (600 s): where they close, no request meets a closed door; 0: no limit.",
    )
    stall_timeout_s: Seconds = Field(
        300.0, description="A client that reads nothing of a waiting answer for this long is dropped; 0: no limit."
    )
    heartbeat_s: Seconds = Field(
        0.0,
        description="Held streams get a sign of life this often, for clients and proxies with idle timeouts; errors "
        "after the first one are events of the stream, which clients do not retry. 0: none.",
    )
    background_lease_s: float = Field(
        1800.0,
        ge=1,
        le=86_400,
        description="A background response (`background: true`) whose end no client comes to see gives its place back "
        "after this.",
    )
    tls_cert_file: str | None = Field(
        None,
        min_length=1,
        description="Certificate chain (PEM) to serve https:// with, read again when it changes; default: plain HTTP.",
    )
    tls_key_file: str | None = Field(None, min_length=1, description="Its key (PEM, not encrypted).")
    tls_client_ca_file: str | None = Field(
        None,
        min_length=1,
        description="CA certificates (PEM): clients, and probes, must show a certificate signed by one of them.",
    )
    access_log: bool = Field(True, description="One line per request on a forwarded path on stderr.")
    admin_token: Secret | None = Field(
        None, description="Token for management calls (Authorization: Bearer). Without it they work from loopback only."
    )
    extra_paths: tuple[PathPattern, ...] = Field(
        (), description="Further paths to forward, exact or ending in /*. Engine development endpoints never."
    )

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file go together")
        if self.tls_client_ca_file and not self.tls_cert_file:
            raise ValueError("tls_client_ca_file needs tls_cert_file and tls_key_file")
        return self


class FleetSettings(Section):
    file: str | None = Field(
        None, min_length=1, description="YAML file with a list of further backends, read again whenever it changes."
    )
    file_interval_s: float = Field(2.0, ge=0.1, le=3600, description="Time between two looks at that file.")
    dns: tuple[PlainUrl, ...] = Field(
        (),
        max_length=64,
        description="URLs such as http://vllm.default.svc:8000: each address that the host name has is a backend.",
    )
    dns_interval_s: float = Field(5.0, ge=0.1, le=3600, description="Time between two questions for these addresses.")
    kubernetes_service: str | None = Field(
        None,
        pattern=r"^([a-z0-9-]{1,63}/)?[a-z0-9-]{1,63}$",
        examples=["inference/vllm"],
        description="Service, or namespace/service, whose ready endpoints are backends (extra k8s).",
    )
    kubernetes_port: str | None = Field(
        None, min_length=1, description="Name or number of its port; default: the first one."
    )
    aliases: dict[Annotated[str, Field(min_length=1, max_length=256)], Annotated[str, Field(min_length=1)]] = Field(
        {}, max_length=10_000, description="Further names of models: what clients may ask for, and what is served."
    )
    warm_up: bool = Field(
        True,
        description="Fill a backend's empty cache with prefixes that many sessions share before it takes turns, where "
        "others serve its models meanwhile.",
    )
    warm_up_file: str | None = Field(
        None,
        min_length=1,
        description="JSON lines, at most ten: bodies of chat completions whose beginning is such a prefix; default: "
        "learned from traffic.",
    )

    @property
    def finds_backends(self) -> bool:
        return bool(self.file or self.dns or self.kubernetes_service)


class UpstreamSettings(Section):
    connect_timeout_s: Seconds = Field(5.0, description="To open a connection to an engine.")
    first_byte_timeout_s: Seconds = Field(0.0, description="Until the first byte of a response; 0: no limit.")
    idle_timeout_s: Seconds = Field(0.0, description="Between two reads of a response; 0: no limit.")
    keepalive_s: Seconds = Field(
        4.0, description="Idle connections are dropped after this; keep it below the engines' own 5 s."
    )
    max_connections: int = Field(4096, ge=1, le=100_000, description="Connections to one backend at once.")
    retry_budget: Share = Field(
        0.1,
        description="Requests that may be sent again, to another backend or the same, when one fails before the first "
        "byte: as a share of all.",
    )
    retry_generation: bool = Field(
        True, description="Send generation again that the failed engine may have begun; false: only what it never got."
    )
    resume_streams: bool = Field(
        False,
        description="Let another engine go on with a stream of plain text whose engine has died; its text is tokenised "
        "anew. Else such a stream ends with the error backend_lost (docs/reliability.md).",
    )
    request_usage: bool = Field(
        True, description="Ask streaming engines for usage when the client did not, and take the extra event out again."
    )


class LawName(StrEnum):
    UNLIMITED = "unlimited"
    FIXED = "fixed"
    AIMD = "aimd"
    EVICTION = "eviction"
    PID = "pid"
    FOOTPRINT = "footprint"
    GRADIENT = "gradient"
    MEANFIELD = "meanfield"


class FixedSettings(Section):
    window: float = Field(16, ge=1, le=1_000_000, description="Sessions that may be active on one backend.")


class AimdSettings(Section):
    alpha: float = Field(2.0, gt=0, le=1000, description="Sessions added per period while there is room.")
    beta: float = Field(0.5, gt=0, lt=1, description="Factor of a cut.")
    usage_low: Share = Field(0.2, description="KV usage below which the window grows.")
    usage_high: Share = Field(0.5, description="KV usage above which a low hit rate means congestion.")
    hit_rate_threshold: Share = Field(0.2, description="Hit rate below which a full cache means congestion.")
    period_s: Seconds = Field(1.0, gt=0, description="Time between two changes.")

    @model_validator(mode="after")
    def _low_below_high(self) -> Self:
        return _ordered(self, "usage_low", "usage_high")


class EvictionSettings(Section):
    alpha: float = Field(2.0, gt=0, le=1000, description="Sessions added per period without congestion.")
    beta: float = Field(0.8, gt=0, lt=1, description="Factor of a cut.")
    threshold: float = Field(0.75, gt=0, le=1000, description="Congestion signal from which the window is cut.")
    product: bool = Field(
        False, description="Congestion is KV usage times evictions per request, not times 1 more than that."
    )
    window_low: float = Field(8, ge=1, le=1_000_000, description="No cut goes below this, in sessions.")
    window_high: float = Field(256, ge=1, le=1_000_000, description="No growth goes above this, in sessions.")
    window_start: float = Field(32, ge=1, le=1_000_000, description="First window, in sessions.")
    period_s: Seconds = Field(1.0, gt=0, description="Time between two changes.")

    @model_validator(mode="after")
    def _windows_in_order(self) -> Self:
        return _ordered(_ordered(self, "window_low", "window_start"), "window_start", "window_high")


class PidSettings(Section):
    target_s: Seconds = Field(2.0, gt=0, description="Time from admission to the first token that is aimed at.")
    kp: float = Field(1.0, ge=0.5, le=1.5, description="Sessions per period for an error as large as the target.")
    ki: float = Field(0.2, ge=0.1, le=0.3, description="Sessions per period for each second of that error.")
    kd: float = Field(0.03, ge=0.01, le=0.05, description="Sessions per period for a change of that error per second.")
    integral_limit_s: Seconds = Field(10.0, gt=0, description="Largest sum of errors, in seconds of a whole one.")
    period_s: Seconds = Field(1.0, gt=0, description="Time between two steps.")


class FootprintSettings(Section):
    target: Share = Field(0.95, gt=0, description="Share of the KV cache that contexts of active sessions may fill.")


class GradientSettings(Section):
    tolerance: float = Field(1.5, ge=1, le=10, description="Times its long-term value that latency may rise to.")
    headroom: float = Field(4.0, gt=0, le=1000, description="Sessions added per period.")
    long_s: Seconds = Field(600.0, gt=0, description="Time over which the long-term latency is taken.")
    period_s: Seconds = Field(1.0, gt=0, description="Time between two steps.")


LEAST_TOKENS = 1024
"""The smallest window in tokens that an upper bound may leave."""


class ControlSettings(Section):
    law: LawName = Field(LawName.MEANFIELD, description="The control law that moves the window.")
    scrape_interval_s: float = Field(1.0, ge=0.05, le=60, description="Time between two reads of an engine's metrics.")
    scrape_timeout_s: float = Field(2.0, ge=0.05, le=60, description="After this a scrape counts as failed.")
    stale_after_s: float = Field(10.0, ge=0.5, le=3600, description="Older signals freeze the window.")
    decay_after_s: float = Field(60.0, ge=1, le=86_400, description="Older signals let it decay to its warm start.")
    state_file: str | None = Field(
        None,
        min_length=1,
        description="File that keeps what the law has learned across restarts; none: it starts anew each time.",
    )
    window_min: float = Field(1, ge=1, le=1e12, description="Lower bound of any window, in the law's unit.")
    window_max: float | None = Field(None, ge=1, le=1e12, description="Upper bound of any window; none: no bound.")
    fixed: FixedSettings = Field(default=FixedSettings(), description="Parameters of the law `fixed`.")
    aimd: AimdSettings = Field(default=AimdSettings(), description="Parameters of the law `aimd`.")
    eviction: EvictionSettings = Field(default=EvictionSettings(), description="Parameters of the law `eviction`.")
    pid: PidSettings = Field(default=PidSettings(), description="Parameters of the law `pid`.")
    footprint: FootprintSettings = Field(default=FootprintSettings(), description="Parameters of the law `footprint`.")
    gradient: GradientSettings = Field(default=GradientSettings(), description="Parameters of the law `gradient`.")

    @model_validator(mode="after")
    def _bounds_in_the_laws_unit(self) -> Self:
        """A bound in sessions would strangle a law that counts tokens: no session fits a window of 64 of them."""
        if self.law is LawName.FOOTPRINT and self.window_max is not None and self.window_max < LEAST_TOKENS:
            raise ValueError(
                f"window_max = {self.window_max:g} is in tokens with the law footprint: must be {LEAST_TOKENS} or more"
            )
        return self

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        return _ordered(_ordered(self, "window_min", "window_max"), "stale_after_s", "decay_after_s")


class LimitSettings(Section):
    """What one tenant may take; none: as much as there is."""

    active_sessions: int | None = Field(None, ge=1, le=1_000_000, description="Sessions that may be active at once.")
    held_turns: int | None = Field(None, ge=0, le=1_000_000, description="Turns that may wait at once.")
    turns_per_minute: float | None = Field(None, ge=1, le=1e9, description="Turns a minute.")
    tokens_per_minute: float | None = Field(
        None, ge=1, le=1e12, description="Tokens a minute that engines compute: not found in a cache, or generated."
    )


class GateSettings(Section):
    mode: Literal["enforce", "observe"] = Field(
        "enforce", description="observe decides and reports, but holds nothing."
    )
    pause: Literal["lazy", "eager"] = Field(
        "lazy", description="lazy: a session over a shrunk window passes while its context is still cached."
    )
    max_wait_s: float = Field(540, ge=0.1, le=86_400, description="Longest wait of a held turn before it is refused.")
    force_after_max_wait: bool = Field(
        False, description="Let a turn in after its longest wait instead of refusing it."
    )
    max_held: int = Field(20_000, ge=0, le=1_000_000, description="Held turns at once; more are refused with 429.")
    lease_min_s: float = Field(30, ge=0.1, le=86_400, description="An idle session keeps its place at least this long.")
    lease_max_s: float = Field(600, ge=0.1, le=86_400, description="An idle session keeps its place at most this long.")
    max_sessions: int = Field(100_000, ge=100, le=10_000_000, description="Sessions remembered at once.")
    retry_after_s: float = Field(2, ge=0, le=3600, description="What refused clients are told to wait.")
    order: Literal["fifo", "furthest", "cache_aware", "smallest", "fair", "deadline", "lanes"] = Field(
        "furthest", description="Who of those that are held goes next (docs/queues.md)."
    )
    hot_share: float = Field(
        0.3,
        ge=0,
        le=0.9,
        description="Part of every window that the order lanes keeps for interactive work at least; more where that "
        "needs more. 0: none.",
    )
    hot_objective_s: float = Field(
        0,
        ge=0,
        le=3600,
        description="Order lanes: time to the first token that 99 % of interactive turns should not exceed. While it "
        "is exceeded batch work is held back. 0: no objective.",
    )
    hot_window_s: float = Field(
        10, ge=1, le=600, description="Time over which that is looked at; three windows in a row decide."
    )
    cold_refuse_after_s: float = Field(
        60, ge=0, le=86_400, description="Batch work that is held back for longer than this is refused."
    )
    weights: dict[Annotated[str, Field(min_length=1, max_length=256)], Annotated[float, Field(ge=0.001, le=1000)]] = (
        Field(
            {},
            max_length=10_000,
            description="Shares of tenants in the order fair, 0.001 to 1000 each; 1 for those not named.",
        )
    )
    limits: dict[Annotated[str, Field(min_length=1, max_length=256)], LimitSettings] = Field(
        {},
        max_length=10_000,
        description="What tenants may take, by name; default is for those not named. Each entry has active_sessions, "
        "held_turns, turns_per_minute and tokens_per_minute, as many of them as are wanted (docs/queues.md).",
    )

    @model_validator(mode="after")
    def _leases_in_order(self) -> Self:
        return _ordered(self, "lease_min_s", "lease_max_s")


class SessionSettings(Section):
    headers: tuple[HeaderName, ...] = Field(
        ("X-Session-ID",), max_length=16, description="Headers that name a session; the first that is present wins."
    )
    tenant_header: HeaderName | None = Field(
        None, description="Header that names a tenant, where whoever sends it may be believed; default: the API key."
    )
    lineage: bool = Field(
        True,
        description="Recognise the sessions of clients that name none by their messages, of which hashes are kept.",
    )
    lineage_memory_bytes: int = Field(
        64 << 20, ge=1 << 20, le=1 << 36, description="Memory for that; the sessions longest unheard of are forgotten."
    )


class BatchSettings(Section):
    store: Annotated[SecretStr, Field(min_length=1)] | None = Field(
        None,
        description="Where batches and their files are kept: a file (SQLite), or the URL of a PostgreSQL database with "
        "the extra `postgres`. None: /v1/files and /v1/batches are off.",
    )
    max_running: int = Field(
        256, ge=1, le=10_000, description="Lines of all batches that are held or run at once; the gate decides on each."
    )
    max_file_bytes: int = Field(200 << 20, ge=1024, le=1 << 36, description="Larger uploads get 413.")
    max_lines: int = Field(50_000, ge=1, le=10_000_000, description="Requests in one batch.")
    max_bytes: int = Field(
        20 << 30, ge=1024, le=1 << 50, description="All files together; uploads beyond that get 413."
    )
    retention_s: int = Field(
        30 * 86_400, ge=3600, le=10 * 366 * 86_400, description="Files and batches are deleted after this."
    )
    meaning_model: str | None = Field(
        None,
        min_length=1,
        description="Name or folder of a sentence-transformers model (extra `meaning`): with the order lanes, batch "
        "turns that wait go next to others whose first user message means the same. None: off.",
    )


class TokenSettings(Section):
    issuer: IdentityUrl | None = Field(
        None, description="Whose tokens are taken (claim iss), such as https://login.example.com; none: no tokens."
    )
    audience: str | None = Field(
        None, min_length=1, description="What their claim aud must name: tokens for other services open nothing here."
    )
    jwks_url: IdentityUrl | None = Field(
        None, description="Where the issuer's public keys are; default: as its discovery document says."
    )
    jwks_file: str | None = Field(
        None, min_length=1, description="File with them instead, where no issuer is in reach; read when it changes."
    )
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...
    ] = Field(("RS256", "ES256"), min_length=1, max_length=10, description="Signatures that are taken.")
    name_claim: str = Field("sub", min_length=1, description="Claim that names the caller, who is a tenant by it.")
    models_claim: str | None = Field(
        None, min_length=1, description="Claim that lists the models that a caller may use; none: all may use all."
    )

    @model_validator(mode="after")
    def _whose_and_for_whom(self) -> Self:
        if (self.issuer is None) != (self.audience is None):
            raise ValueError("issuer and audience go together")
        if self.jwks_url and self.jwks_file:
            raise ValueError("jwks_url is of no use with jwks_file: take one of them")
        return self


class AuthSettings(Section):
    keys_file: str | None = Field(
        None,
        min_length=1,
        description="File of API keys, made by `concur-proxy keygen`; read again when it changes. With it every "
        "request needs a key, and engines get their own api_key in its place.",
    )
    keys: SecretText | None = Field(
        None, description="The content of such a file, for the environment. Keys of both are taken."
    )
    jwt: TokenSettings = Field(
        default=TokenSettings(), description="Tokens of an identity provider; needs the extra `jwt`."
    )

    @property
    def is_on(self) -> bool:
        """Tell whether the proxy checks who calls."""
        return self.keys_file is not None or self.keys is not None or self.jwt.issuer is not None


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe lines to write.")
    format: Literal["text", "json"] = Field("text", description="Lines for people or for machines.")
    sample: Share = Field(
        1.0, description="Share of the access lines of requests that went well which is written; all others are."
    )


class MetricsSettings(Section):
    max_tenants: int = Field(
        0,
        ge=0,
        le=1000,
        description="Tenants that metrics tell apart, the first to come; further ones count as other. 0: none.",
    )


class TracingSettings(Section):
    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$",
        examples=["http://collector:4318"],
        description="OTLP receiver that spans go to, such as http://collector:4318 (extra otel); none: no tracing.",
    )
    protocol: Literal["http", "grpc"] = Field("http", description="What it speaks; gRPC is mostly on port 4317.")
    sample: Share = Field(
        1.0, description="Share of traces that are recorded where the client's traceparent does not say."
    )
    service_name: str = Field("concur-proxy", min_length=1, max_length=256, description="Name of the proxy in traces.")


class StateSettings(Section):
    url: StateUrl | None = Field(
        None,
        description="Redis or Valkey that several replicas share their state through, such as redis://host:6379/0 "
        "(docs/replicas.md, extra redis); none: this proxy is the only one.",
    )
    username: str | None = Field(None, min_length=1, description="User, where it is not in the URL.")
    password: Secret | None = Field(None, description="Password, where it is not in the URL.")
    ca_file: str | None = Field(
        None, min_length=1, description="CA certificates (PEM) that sign its certificate; default: the system's."
    )
    name: str = Field(
        "concur",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        examples=["team-a.production"],
        description="Of the deployment: its keys begin with it. Replicas of one proxy have the same.",
    )

    @model_validator(mode="before")
    @classmethod
    def _a_bare_url_is_enough(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value


BATCH_PATHS = ("/v1/files", "/v1/batches")


class Settings(Section):
    """Everything that can be set."""

    backends: Annotated[tuple[BackendSettings, ...], AfterValidator(_distinct)] = Field(
        (), description="The engines. At least one is needed to serve."
    )
    server: ServerSettings = Field(default=ServerSettings(), description="The listening side.")
    upstream: UpstreamSettings = Field(default=UpstreamSettings(), description="The side towards the engines.")
    control: ControlSettings = Field(
        default_factory=ControlSettings, description="The window and the law that moves it."
    )
    fleet: FleetSettings = Field(
        default=FleetSettings(), description="Backends that come and go, and names of models (docs/fleets.md)."
    )
    gate: GateSettings = Field(default=GateSettings(), description="Admission.")
    sessions: SessionSettings = Field(default=SessionSettings(), description="How sessions are recognised.")
    batch: BatchSettings = Field(default=BatchSettings(), description="The Batch API (docs/batch.md).")
    auth: AuthSettings = Field(
        default=AuthSettings(), description="Who may call. Off by default: engines check keys, as without a proxy."
    )
    state: StateSettings = Field(
        default=StateSettings(), description="What several replicas share; its URL alone will do (docs/replicas.md)."
    )
    log: LogSettings = Field(default=LogSettings(), description="Logging.")
    metrics: MetricsSettings = Field(default=MetricsSettings(), description="Metrics (docs/metrics.md).")
    tracing: TracingSettings = Field(default=TracingSettings(), description="Traces (docs/tracing.md).")

    @model_validator(mode="after")
    def _does_not_face_itself(self) -> Self:
        for backend in self.backends:
            if _is_own(backend.url, self.server):
                raise ValueError(
                    f"backends: {backend.url} is where the proxy itself listens: name the engine's own address, "
                    "or give the proxy another server.port"
                )
        return self

    @model_validator(mode="after")
    def _files_and_batches_stay_here(self) -> Self:
        """What is forwarded comes first: a path that takes in those of the Batch API would hide it."""
        for pattern in self.server.extra_paths if self.batch.store is not None else ():
            hidden = [path for path in BATCH_PATHS if _forwards(pattern, path)]
            if hidden:
                raise ValueError(f"server.extra_paths: {pattern} forwards {hidden[0]}, which batch.store serves here")
        return self


def _is_own(url: str, server: ServerSettings) -> bool:
    """Tell whether a backend's URL leads back to the proxy, as far as the two texts tell."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    loopback = {"localhost", "127.0.0.1"}
    local = parts.hostname in loopback and server.host in {*loopback, "0.0.0.0", "::"}  # noqa: S104 - compared only
    return port == server.port and (local or parts.hostname == server.host)


def _forwards(pattern: str, path: str) -> bool:
    """Tell whether a pattern of ``extra_paths`` takes in a path or something below it."""
    if not pattern.endswith("/*"):
        return pattern == path or pattern.startswith(f"{path}/")
    return path.startswith(pattern[:-1]) or pattern.startswith(f"{path}/")
