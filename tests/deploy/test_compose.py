"""The compose file: what it mounts is there, what it starts starts, and nothing is open beyond this machine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from concur_proxy.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "concur-proxy"}


def test_the_keys_are_those_that_compose_knows():
    known = {"name", "services", "configs", "volumes", "x-ours"}
    assert set(COMPOSE) <= known
    service_keys = {
        *("image", "build", "restart", "read_only", "tmpfs", "cap_drop", "security_opt", "command", "environment"),
        *(
            "ports",
            "stop_grace_period",
            "profiles",
            "healthcheck",
            "networks",
            "depends_on",
            "ipc",
            "volumes",
            "deploy",
        ),
        "configs",
    }
    for service in SERVICES.values():
        assert set(service) <= service_keys


def test_what_is_mounted_is_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
        for config in service.get("configs", ()):
            assert config["source"] in COMPOSE["configs"]
        for needed in service.get("depends_on", {}):
            assert needed in SERVICES
    assert (DEPLOY / "compose.yaml").parent.joinpath(OURS["concur-proxy"]["build"]["context"], "Dockerfile").exists()


def test_nothing_is_open_beyond_this_machine():
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", OURS)
def test_our_services_have_no_rights(name):
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", OURS)
def test_our_commands_are_understood(name):
    command = typer.main.get_command(app)
    verb, *arguments = OURS[name]["command"]
    context = command.commands[verb].make_context(verb, list(arguments))
    assert context.params


def test_the_grace_is_longer_than_that_of_running_streams():
    from concur_proxy.config import ServerSettings

    assert int(SERVICES["concur-proxy"]["stop_grace_period"].rstrip("s")) > ServerSettings().grace_s


def test_each_profile_has_one_engine_by_the_name_that_the_proxy_asks_for():
    backend = OURS["concur-proxy"]["command"][2]
    host = re.fullmatch(r"http://([a-z]+):8000", backend)[1]
    engines = {
        name: service["profiles"]
        for name, service in SERVICES.items()
        if host in service.get("networks", {}).get("default", {}).get("aliases", ())
    }
    assert engines == {"engine": ["demo"], "vllm": ["gpu"]}
    variables = dict(line.split("=") for line in (DEPLOY / ".env").read_text().splitlines() if not line.startswith("#"))
    assert variables == {"COMPOSE_PROFILES": "demo"}


def test_prometheus_scrapes_the_proxy_by_its_name():
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in scraped for one in job["static_configs"] for target in one["targets"]]
    assert "concur-proxy:8080" in targets


def test_grafana_finds_prometheus_and_its_first_page():
    (source,) = yaml.safe_load(COMPOSE["configs"]["datasource"]["content"])["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in SERVICES
    grafana = SERVICES["grafana"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (DEPLOY / "grafana" / "dashboards" / home.name).exists()
    provider = yaml.safe_load((DEPLOY / "grafana" / "provisioning" / "dashboards.yml").read_text())["providers"][0]
    assert str(home.parent) == provider["options"]["path"]
    assert any(volume.split(":")[1] == str(home.parent) for volume in grafana["volumes"])


def test_images_are_pinned():
    others = [service["image"] for service in SERVICES.values() if service["image"] != "concur-proxy"]
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in others), shlex.join(others)
