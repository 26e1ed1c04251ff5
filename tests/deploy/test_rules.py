"""Prometheus' rules: sound by promtool, tested there one by one, and about metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from concur_proxy.observe.catalogue import FAMILIES, NAMES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
FILES = sorted((FOLDER / "rules").glob("*.yml"))
RULES = [rule for path in FILES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
CASES = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="prometheus is not installed here; install it with: .ci/services"
)


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)


@pytest.mark.service
@needs_promtool
def test_promtool_finds_the_rules_sound():
    checked = promtool("check", "rules", *map(str, FILES))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.service
@needs_promtool
def test_every_alert_fires_in_its_trouble_and_clears_after_it():
    checked = promtool("test", "rules", "rules_test.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.service
@needs_promtool
def test_promtool_finds_the_scrape_configuration_sound():
    checked = promtool("check", "config", "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_alert_is_without_a_test_of_both():
    seen = {
        (case["name"], bool(check["exp_alerts"]))
        for case in CASES
        for check in case["alert_rule_test"]
        if check["alertname"] == case["name"]
    }
    assert seen == {(name, fires) for name in ALERTS for fires in (True, False)}


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_every_alert_says_how_bad_it_is_and_what_to_do(name):
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert all(alert["annotations"][key].strip() for key in ("summary", "action"))
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    assert anchor == name.lower()
    assert name in headings


def test_the_runbook_has_no_alert_that_is_not_there():
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE)
    assert headings == list(ALERTS)


def test_rules_go_by_metrics_and_labels_that_exist():
    labels = {family.name: set(family.labels) for family in FAMILIES}
    for rule in RULES:
        assert set(re.findall(r"concur:[a-z0-9_:]+", rule["expr"])) <= RECORDED
        for name, chosen in re.findall(r"\b(concur_[a-z_]+)(?:\{([^}]*)\})?", rule["expr"]):
            metric = name.removesuffix("_bucket").removesuffix("_count")
            assert metric in NAMES, name
            assert set(re.findall(r"(\w+)[=!]", chosen or "")) <= labels[metric] | {"le"}, name
