"""Wheel and sdist: complete, of one version, installable in a fresh environment, and what an index would take."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from concur_proxy import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def run(*command, **kwargs):
    env = {**os.environ, "CONCUR_PROXY_COMPILE": "no", "PYTHONPATH": ""}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, **kwargs)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The sdist, and the wheel that is made from it; compiled ones are what .ci/run installs."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    return folder


def names(path):
    if path.suffix == ".whl":
        return set(zipfile.ZipFile(path).namelist())
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_both_carry_the_version_that_the_code_has(dist):
    assert {path.name for path in dist.iterdir()} == {
        f"concur_proxy-{__version__}.tar.gz",
        f"concur_proxy-{__version__}-py3-none-any.whl",
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="which files belong to the package is told by git")
def test_everything_of_the_package_is_in_both(dist):
    tracked = run("git", "ls-files", "concur_proxy", cwd=ROOT).split()
    for path in dist.iterdir():
        assert set(tracked) <= names(path)
        assert not [name for name in names(path) if "__pycache__" in name or name.endswith((".so", ".pyc"))]


def test_the_sdist_has_what_its_tests_and_deployments_need(dist):
    (sdist,) = dist.glob("*.tar.gz")
    found = names(sdist)
    for wanted in (
        "tests/conftest.py",
        "docs/configuration.md",
        "helm/concur-proxy/values.yaml",
        "Dockerfile",
        "LICENSE",
    ):
        assert wanted in found


def test_an_index_would_take_them(dist):
    pytest.importorskip("twine", reason="it comes with pip install '.[deploy]'")
    said = run(sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir()))
    assert said.count("PASSED") == 2


def test_it_installs_and_runs_in_a_fresh_environment(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "fresh"))
    python = tmp_path / "fresh" / "bin" / "python"
    run(str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel))
    (packages,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    ours = next(path for path in map(Path, sys.path) if path.name == "site-packages" and (path / "pydantic").exists())
    (packages / "dependencies.pth").write_text(f"{ours}\n")  # which .ci/run installs for real
    assert run(str(packages.parents[2] / "bin" / "concur-proxy"), "--version", cwd=tmp_path).startswith(
        f"concur-proxy {__version__} "
    )
    where = run(str(python), "-c", "import concur_proxy; print(concur_proxy.__file__)", cwd=tmp_path)
    assert where.startswith(str(packages))


def test_the_bill_of_materials_lists_what_it_needs():
    pytest.importorskip("cyclonedx_py", reason="it comes with pip install '.[deploy]'")
    told = json.loads(run(sys.executable, "-m", "cyclonedx_py", "environment", sys.executable))
    listed = {component["name"].lower().replace("_", "-") for component in told["components"]}
    text = (ROOT / "pyproject.toml").read_text()
    needed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert needed is not None
    wanted = {re.match(r"[A-Za-z0-9-]+", name)[0].lower() for name in re.findall(r'"([^"]+)"', needed[1])}
    assert wanted <= listed


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_end_by_themselves(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow[True]  # YAML reads `on` as a truth value
    for name, job in workflow["jobs"].items():
        assert set(job.get("needs", ())) <= set(workflow["jobs"])
        assert job.get("timeout-minutes", 0) or name == "release"
        writes = {right for right, level in job.get("permissions", {}).items() if level == "write"}
        assert writes <= ({"id-token"} if name == "release" else {"packages"})
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./-]+", step["uses"])
            if "secrets." in str(step):
                assert "refs/tags/v" in step["if"]


def test_workflows_run_what_is_there():
    text = "".join(path.read_text() for path in WORKFLOWS)
    assert "bash .ci/run" in text
    assert (ROOT / ".ci" / "run").exists()
