"""Everything an operator can set: environment variables with the prefix PLACET_, each bounded and described."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from placet_server.config_check import problems_of
from placet_server.model.caller import CallerKind

MIB = 2**20


class ConfigRefused(Exception):
    """The server does not start like this. The text is for the operator: what is wrong and what to set."""


def _words(value: object) -> object:
    """A list in one variable: separated by commas."""
    return (
        tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value
    )


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Config(BaseSettings):
    """Field `port` is set by PLACET_PORT, and so on. Lists are separated by commas."""

    model_config = SettingsConfigDict(
        env_prefix="PLACET_", frozen=True, extra="forbid", validate_default=True
    )

    # Ports.
    host: str = Field("127.0.0.1", description="Address of the main port.")
    port: Port = Field(7433, description="Main port; 0: any free one.")
    health_host: str = Field("127.0.0.1", description="Address of the plaintext health port.")
    health_port: Port = Field(7434, description="Health port; 0: any free one.")
    metrics_port: Port | None = Field(
        None, description="Port of /metrics (Prometheus) on health_host; unset: none."
    )
    reuse_port: bool = Field(
        False,
        description="Several processes may share the main port (SO_REUSEPORT), on which each listens several times: it "
        "takes more calls a second.",
    )
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Server processes on this machine, with one parent; they share the ports and the store.",
    )
    insecure_bind: bool = Field(
        False,
        description="Allow plaintext and identity_dev on an address that is not loopback: a container, a mesh.",
    )
    reflection: bool = Field(False, description="Serve gRPC reflection; for development.")

    # TLS.
    tls_certificate_file: Path | None = Field(None, description="Server certificate chain, PEM.")
    tls_private_key_file: Path | None = Field(None, description="Its private key, PEM.")
    tls_client_ca_file: Path | None = Field(
        None, description="Authorities of client certificates, PEM; clients must show one."
    )

    # Store.
    dsn: str = Field("", description="Postgres 15+ (durable, shared); empty: embedded Postgres.", repr=False)
    dsn_durability: Literal["ephemeral", "durable_single_process", "durable_shared"] = Field(
        "durable_shared", description="What the Postgres of dsn keeps; checked against its settings."
    )
    data_dir: Path | None = Field(None, description="Folder of the embedded Postgres (durable, one server).")
    ephemeral: bool = Field(False, description="Embedded Postgres in a temporary folder, gone at stop.")
    store_wait_seconds: float = Field(
        30.0, ge=0, le=3600, description="A start waits so long for a store that does not answer."
    )
    store_connections_max: int = Field(10, ge=2, le=200, description="Connections of the pool.")
    auto_migrate: bool = Field(True, description="Bring the schema up to date at start; off: only check it.")
    lease_seconds: float = Field(
        15.0, ge=1, le=300, description="A process silent for so long may lose its actions."
    )

    retention_days: float = Field(
        30.0,
        ge=0,
        le=36_500,
        description="How long actions are kept after their end, longer while their key is known; 0: for ever.",
    )
    retention_dead_letter_days: float = Field(
        90.0, ge=0, le=36_500, description="How long dead letters are kept, if that is longer; 0: for ever."
    )
    retention_report_days: float = Field(
        365.0,
        ge=0,
        le=36_500,
        description="How long reports of recovery are kept, the newest 1000 of a tenant; 0: for ever.",
    )

    retention_delivery_days: float = Field(
        30.0, ge=0, le=36_500, description="How long callbacks are kept after their end; 0: for ever."
    )

    # Handlers.
    app: Words = Field((), description="Apps to load, each module:object or the name of an entry point.")
    admit_apps: bool = Field(
        True,
        description="Offer the loaded apps to every tenant; off: each tenant admits the manifests it wants.",
    )

    # Connectors.
    name: str = Field(
        "placet",
        min_length=1,
        max_length=256,
        description="What this deployment is called: issuer of the tokens that connectors get.",
    )
    connector_hosts: Words = Field(
        ("loopback",),
        description="Hosts that manifests may have dialled: names, *.domains, networks, loopback, private, public, *; "
        "empty: none.",
    )
    connector_insecure: bool = Field(
        False, description="Allow plaintext to connectors that are not on this machine: a mesh."
    )
    connector_tls_ca_file: Path | None = Field(
        None, description="Authorities of connectors' certificates, PEM; unset: those that everybody trusts."
    )
    connector_certificate_file: Path | None = Field(
        None, description="Certificate chain shown to connectors, PEM."
    )
    connector_private_key_file: Path | None = Field(None, description="Its private key, PEM.")
    connector_accept_seconds: float = Field(
        5.0, ge=0.1, le=60, description="What a connector has to be reached, to have room and to accept."
    )
    signing_key_file: Path | None = Field(
        None,
        description="Ed25519 private key, PEM, that signs connectors' tokens; unset: one that the store keeps.",
    )

    # Callbacks.
    callback_file: Path | None = Field(
        None, description="Who is told of what, TOML; read again when it changes. Unset: nobody."
    )
    callback_hosts: Words = Field(
        ("public",),
        description="Hosts that targets may be at: names, *.domains, networks, loopback, private, public, *.",
    )
    callback_insecure: bool = Field(
        False, description="Allow http to targets that are not on this machine: a mesh."
    )
    callback_tls_ca_file: Path | None = Field(
        None, description="Authorities of targets' certificates, PEM; unset: those that everybody trusts."
    )
    callback_slots: int = Field(
        64, ge=0, le=1024, description="Callbacks being sent at once; 0: this process sends none."
    )
    callback_seconds: float = Field(
        10.0, ge=0.5, le=60, description="What a target has to be found, to be reached and to answer."
    )
    callback_attempts: int = Field(
        12, ge=1, le=100, description="Attempts at a callback, over about a day; then it is dead."
    )

    # Identity: at least one of dev, JWT, mTLS.
    identity_dev: bool = Field(False, description="One token in token_file with every scope; loopback only.")
    token_file: Path = Field(Path(".placet/token"), description="Where identity_dev keeps its token.")
    dev_people: Words = Field(
        (),
        description="More people of identity_dev, each name or name:role+role; the token of anna is in the file "
        "called like token_file and then .anna.",
    )
    dev_tenant: str = Field(
        "dev", description="Tenant of identity_dev.", pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$"
    )
    dev_subject: str = Field(
        "developer", description="Subject of identity_dev.", min_length=1, max_length=256
    )

    bootstrap_token_file: Path | None = Field(
        None,
        description="While the operator has no policies: where a start puts a token that admits the first, once.",
    )

    jwt_issuer: str = Field("", description="Accept JSON Web Tokens of this issuer.")
    jwt_audience: str = Field("", description="The audience they must name.")
    jwt_jwks_file: Path | None = Field(None, description="The issuer's keys (JWKS) in a file.")
    jwt_jwks_url: str = Field("", description="The issuer's keys (JWKS) at a URL.")
    jwt_algorithms: Words = Field(("ES256", "EdDSA", "RS256"), description="Accepted algorithms; never none.")
    jwt_leeway_seconds: float = Field(30.0, ge=0, le=300, description="Forgiven difference of clocks.")
    jwt_refresh_seconds: float = Field(600.0, ge=1, le=86400, description="Age at which keys are read again.")
    jwt_refresh_seconds_min: float = Field(
        10.0, ge=0, le=3600, description="Least pause between two readings of keys."
    )
    jwt_tenant: str = Field(
        "", description="Tenant of every token, instead of a claim.", pattern=r"^([a-z0-9][a-z0-9_-]{0,63})?$"
    )
    jwt_claim_tenant: str = Field("tenant", description="Claim with the tenant; dots reach into objects.")
    jwt_claim_subject: str = Field("sub", description="Claim with the subject.", min_length=1)
    jwt_claim_kind: str = Field(
        "kind", description="Claim with user, service or agent; absent in a token: jwt_kind."
    )
    jwt_kind: CallerKind = Field(CallerKind.USER, description="Kind of callers whose token does not say.")
    jwt_claim_roles: str = Field("roles", description="Claim with the roles.")
    jwt_claim_groups: str = Field("groups", description="Claim with the groups.")
    jwt_claim_scopes: str = Field(
        "scope", description="Claim with the scopes; empty: every token has jwt_scopes."
    )
    jwt_scopes: Words = Field((), description="Scopes of every token when jwt_claim_scopes is empty.")
    jwt_claim_delegation: str = Field(
        "act",
        description="Claim with who acts for the subject (RFC 8693): an object with jwt_claim_subject and "
        "jwt_claim_kind, nested ten deep at most; empty: not read.",
    )
    jwt_claim_login_strength: str = Field("acr", description="Claim with the class of the login.")
    jwt_claim_login_methods: str = Field("amr", description="Claim with the methods of the login (RFC 8176).")
    jwt_claim_login_time: str = Field(
        "auth_time", description="Claim with the time of the login, in seconds since the epoch."
    )
    jwt_claim_credential: str = Field("", description="Claim with the handle of a provider credential.")
    jwt_claim_credential_issuer: str = Field("", description="Claim with that credential's issuer.")
    jwt_claim_credential_scopes: str = Field("", description="Claim with that credential's scopes.")

    identity_mtls: bool = Field(
        False, description="Client certificates say who calls; needs the three TLS files."
    )
    mtls_trust_domain: str = Field(
        "", description="Read the SPIFFE id /tenant/subject; empty: O is the tenant, CN the subject."
    )
    mtls_scopes: Words = Field((), description="Scopes of every client certificate.")
    mtls_kind: CallerKind = Field(CallerKind.SERVICE, description="Kind of every client certificate's owner.")

    authority_file: Path | None = Field(
        None,
        description="Roles and groups that count for decisions, in TOML by tenant and subject, not the token's; "
        "read again when it changes.",
    )
    authority_url: str = Field(
        "", description="The same from a service, asked over HTTP; while it does not answer, nobody decides."
    )
    authority_token_file: Path | None = Field(None, description="Bearer token for authority_url.")
    authority_keep_seconds: float = Field(
        30.0, ge=0, le=3600, description="How long an answer of authority_url is kept."
    )

    message_skew_seconds: float = Field(
        300.0,
        ge=1,
        le=1800,
        description="How far from the store's clock the time of a message with an id (placet-message-time) may be.",
    )

    quota_file: Path | None = Field(
        None, description="How much tenants may ask for, in TOML by tenant; read again when it changes."
    )

    # Limits.
    sessions_open_max: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Sessions that one caller may have open; one more is QUOTA_EXCEEDED.",
    )
    calls_max: int = Field(
        1024, ge=1, le=100_000, description="Calls in flight; more are refused as OVERLOADED."
    )
    watches_max: int = Field(
        2048, ge=1, le=100_000, description="Watching and waiting calls in flight, counted apart."
    )
    reader_stall_seconds: float = Field(
        60.0, gt=0, le=3600, description="A reader of a stream that takes nothing for so long is let go."
    )
    tenant_share: float = Field(0.8, gt=0, le=1, description="Part of each limit that one tenant may have.")
    receive_bytes_max: int = Field(20 * MIB, ge=4 * MIB, le=64 * MIB, description="Largest message, bytes.")
    metadata_bytes_max: int = Field(
        16 * 1024, ge=8 * 1024, le=64 * 1024, description="Most metadata of a call, bytes."
    )
    streams_per_connection_max: int = Field(
        1024, ge=1, le=100_000, description="Calls in flight on one connection."
    )
    keepalive_seconds: float = Field(
        30.0, ge=1, le=7200, description="A silent connection is asked so often whether it lives."
    )
    keepalive_timeout_seconds: float = Field(
        10.0, ge=1, le=600, description="And closed after so long without an answer."
    )
    connection_age_seconds: float = Field(
        1800.0, ge=1, description="Then the client is asked to connect again, to spread load."
    )
    connection_age_grace_seconds: float = Field(
        900.0, ge=1, description="What its running calls have to end."
    )
    queue_slots: int = Field(
        256,
        ge=0,
        le=4096,
        description="Submitted actions running at once, plain handlers only on three quarters of threads_max; 0: this "
        "process runs none.",
    )
    queue_claim_max: int = Field(
        100, ge=1, le=500, description="Submitted actions taken from their queues in one statement, at most."
    )
    queue_poll_seconds: float = Field(
        0.25,
        ge=0.01,
        le=60,
        description="How late work that another process put into a queue is seen, at most.",
    )
    notify: bool = Field(
        True,
        description="Processes wake each other by NOTIFY of Postgres; off: each only looks by itself, now and then.",
    )
    threads_max: int = Field(32, ge=1, le=1024, description="Plain (not async) handlers running at once.")

    agent_runs_max: int = Field(
        512,
        ge=0,
        le=16384,
        description="Runs of agents taken from queues that wait for their models here, beside what queue_slots says.",
    )

    # Agents. A manifest whose agents may spend more than these is refused.
    model_file: Path | None = Field(
        None,
        description="Which models agents may name, where they are and what they cost, in TOML; read again when it "
        "changes.",
    )
    models_allowed: Words = Field(
        (),
        description="Models that agents may name beside those of model_file, each kind:model, such as openai:gpt-5; "
        "their keys are in the usual variables of their kinds.",
    )
    credential_file: Path | None = Field(
        None,
        description="Where the secrets are that agents and models name by handles, in TOML; read again when it "
        "changes.",
    )
    agent_turns_max: int = Field(
        50,
        ge=1,
        le=10_000,
        description="Answers of its model, and of its delegates', that one run of an agent may spend.",
    )
    agent_tokens_max: int = Field(
        1_000_000, ge=1, le=10**12, description="Tokens that one run may spend, input and output together."
    )
    agent_cost_micros_max: int = Field(
        0,
        ge=0,
        le=10**15,
        description="Millionths of the price list's currency that one run may spend; 0: no bound.",
    )
    agent_active_seconds_max: float = Field(
        3600.0,
        ge=1,
        le=30 * 86400,
        description="How long one run may be at work; waiting does not count.",
    )

    # Life.
    drain_seconds: float = Field(
        30.0, ge=0, le=3600, description="What running calls have to end after SIGTERM."
    )
    drain_notice_seconds: float = Field(
        0.0, ge=0, le=300, description="NOT_SERVING for so long before the port closes."
    )
    stall_seconds: float = Field(
        5.0, gt=0, le=600, description="`live` fails when the event loop does not answer for so long."
    )
    overdue_threads_max: int = Field(
        8, ge=0, description="`live` fails with more handler threads past their deadline."
    )
    store_probe_seconds: float = Field(
        2.0, gt=0, le=60, description="The store is tried so often; `storage` fails after three misses."
    )

    # Telemetry. OTLP is configured by the standard OTEL_* variables.
    log_format: Literal["text", "json"] = Field("text", description="Lines for people or for machines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")
    trace_ratio: float = Field(
        0.01, ge=0, le=1, description="Part of calls traced when the caller does not decide."
    )
    otel_content: bool = Field(
        False,
        description="Spans of agents' runs show what models are told and say, but for what contracts call sensitive.",
    )


def load_config(**overrides: Any) -> Config:
    """From the environment, with these fields instead. Raises ConfigRefused, naming every variable that is wrong."""
    try:
        config = Config(**overrides)
    except ValidationError as error:
        raise ConfigRefused("; ".join(_told(each) for each in error.errors())) from None
    for problem in problems_of(config):
        raise ConfigRefused(problem)
    return config


def _told(error: Any) -> str:
    name = "_".join(str(step) for step in error["loc"][:1])
    return f"PLACET_{name.upper()}: {error['msg']}"
