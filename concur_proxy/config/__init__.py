"""The settings: the ``tree`` with its bounds and help texts, how to ``load`` it, and the texts made from it.

``types`` check single values, ``problems`` says what is wrong, ``words`` and ``pages`` describe the tree to people.
Loading is not imported here: whoever only reads settings needs neither YAML nor the environment.
"""

from concur_proxy.config.tree import (
    AimdSettings,
    AuthSettings,
    BackendSettings,
    BatchSettings,
    ControlSettings,
    EngineKind,
    FixedSettings,
    FleetSettings,
    GateSettings,
    LawName,
    LogSettings,
    Priorities,
    Section,
    ServerSettings,
    SessionSettings,
    Settings,
    StateSettings,
    TokenSettings,
    TracingSettings,
    UpstreamSettings,
)

__all__ = [
    "AimdSettings",
    "AuthSettings",
    "BackendSettings",
    "BatchSettings",
    "ControlSettings",
    "EngineKind",
    "FixedSettings",
    "FleetSettings",
    "GateSettings",
    "LawName",
    "LogSettings",
    "Priorities",
    "Section",
    "ServerSettings",
    "SessionSettings",
    "Settings",
    "StateSettings",
    "TokenSettings",
    "TracingSettings",
    "UpstreamSettings",
]
