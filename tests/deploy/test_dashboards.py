"""Grafana's dashboards: as the generator makes them, about metrics and labels that exist, with everything explained."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from concur_proxy.observe.catalogue import FAMILIES, NAMES
from tests.deploy.test_rules import RECORDED

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "grafana"
FILES = sorted((FOLDER / "dashboards").glob("*.json"))
ELSEWHERE = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
GPU = {"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_GPU_TEMP"}
LABELS = {family.name: {*family.labels, "job", "instance", "le"} for family in FAMILIES}


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("grafana_generate", FOLDER / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))


def panels() -> list[tuple[str, dict]]:
    boards = [json.loads(path.read_text()) for path in FILES]
    return [(board["title"], panel) for board in boards for panel in board["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for _, panel in panels() for target in panel["targets"]]


def test_the_dashboards_are_those_that_the_generator_makes(generator):
    assert {path.stem for path in FILES} == {board.uid for board in generator.BOARDS}
    for board in generator.BOARDS:
        committed = (FOLDER / "dashboards" / f"{board.uid}.json").read_text()
        assert committed == generator.render(board), "run: python deploy/grafana/generate.py"


def test_the_page_says_of_every_panel_what_to_look_for(generator):
    page = (ROOT / "docs" / "observability.md").read_text()
    assert generator.render_panels() in page, "run: python deploy/grafana/generate.py"
    assert all(f"| {panel['title']} | {panel['description']} |" in page for _, panel in panels())


def test_queries_name_metrics_that_exist():
    named = {name for query in queries() for name in re.findall(r"\b(?:concur_|process_|DCGM_)\w+", query)}
    known = {*NAMES, *(f"{name}_{part}" for name in NAMES for part in ("bucket", "count", "sum")), *ELSEWHERE, *GPU}
    assert named <= known
    assert {name for query in queries() for name in re.findall(r"concur:[a-z0-9_:]+", query)} <= RECORDED


def test_queries_and_legends_use_labels_that_exist():
    for _, panel in panels():
        for target in panel["targets"]:
            chosen = re.findall(r"\b(concur_\w+?)(?:_bucket|_count)?\{([^}]*)\}", target["expr"])
            for name, selector in chosen:
                assert set(re.findall(r"(\w+)[=!]~?", selector)) <= LABELS[name], target["expr"]
            told = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            offered = set().union(*(LABELS[name] for name, _ in chosen), {"gpu", "Hostname"} if not chosen else set())
            assert told <= offered | {"job", "instance"}, target["legendFormat"]


def test_every_metric_of_its_own_stands_on_some_dashboard():
    shown = " ".join(queries())
    assert [name for name in NAMES if name not in shown] == []


def test_every_panel_asks_the_chosen_prometheus_and_fits_the_grid():
    for title, panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}, title
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, (title, panel["title"])


def test_panels_do_not_lie_on_each_other():
    for path in FILES:
        taken = set()
        for panel in json.loads(path.read_text())["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, (path.name, panel["title"])
            taken |= cells


def test_the_schema_is_one_of_a_current_grafana():
    assert {json.loads(path.read_text())["schemaVersion"] for path in FILES} == {41}
