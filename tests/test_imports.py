"""Who may import what: the layers, the pure packages, and the one place of each outside library.

``check`` reads a module's source and returns what it does wrong; the tests below show it modules that do.
"""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = "concur_proxy"
ROOT = Path(__file__).parent.parent / PACKAGE

LAYERS = {
    "": 0,  # the package itself: its version
    "model": 0,
    "errors": 0,
    "tasks": 0,
    "pictures": 1,
    "core": 1,
    "windows": 1,
    "engines": 1,
    "history": 1,
    "auth": 2,
    "config": 2,
    "sim": 2,
    "gateway": 3,
    "batch": 3,
    "control": 3,
    "fleet": 3,
    "observe": 3,
    "admin": 3,
    "bench": 3,
    "simulate": 3,
    "state": 3,
    "doctor": 4,
    "runtime": 4,
    "cli": 5,
    "__main__": 6,
}

SIDEWAYS = {
    ("core", "windows"),  # the contract between gate and laws
    ("core", "engines"),  # samples, of which signals are made
    ("batch", "gateway"),  # lines of batches go the way of all turns
    ("gateway", "observe"),  # the log of a turn
    ("control", "fleet"),  # the roster gives backends their pools
    ("control", "gateway"),  # engines are asked on connections like those of turns
    ("bench", "fleet"),  # the demo's engine is a child process
}
"""Imports within a layer, importer first. No two packages import each other."""

PURE = {"core", "windows", "engines", "history"}
"""These import nothing but the standard library and what is below them."""

IMPURE_MODULES = {
    "asyncio",
    "concurrent",
    "datetime",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "sched",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}
"""Clocks, the world outside, and chance that no seed governs."""

HOMES = {
    "jwt": ("auth/tokens.py",),
    "httpx": ("auth/jwks.py", "control/scraper.py", "admin/client.py", "doctor/", "cli.py", "bench/"),
    "kubernetes": ("fleet/sources/endpoints.py",),
    "prometheus_client": ("observe/metrics.py",),
    "opentelemetry": ("observe/tracing.py",),
    "sqlalchemy": ("batch/server_database.py",),
    "fastapi": ("admin/", "batch/", "gateway/app.py", "runtime/serving.py", "sim/server/"),
    "redis": ("state/",),
    "sentence_transformers": ("gateway/meaning.py",),
    "zmq": ("control/kv_events.py",),
    "msgspec": (
        "batch/lines.py",
        "control/kv_events.py",
        "gateway/answers.py",
        "gateway/conversations.py",
        "gateway/skim.py",
    ),
}
"""Where alone a library is imported: a file, or a folder that ends in a slash."""


def parts(where):
    """Return package or module of the top level, and whether the clockless rules hold: ``sim/step.py`` -> sim, True."""
    top = where.split("/")[0].removesuffix(".py")
    top = "" if top == "__init__" else top
    return top, top in PURE or (top == "sim" and not where.startswith("sim/server/"))


def imports(tree):
    """Yield every module that is imported, also inside functions; a relative one begins with dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names] if module == PACKAGE else []
            inside = [f"{module}.{name}" for name in names if name in LAYERS]
            yield from ((node.lineno, name) for name in inside or [module])


def wrong_direction(top, target):
    other = target.split(".")[1] if "." in target else ""
    if other not in LAYERS:
        return f"imports {target}, which is in no layer"
    if LAYERS[other] > LAYERS[top]:
        return f"{top} must not import {other}: it is above"
    peers = LAYERS[other] == LAYERS[top] and other != top and LAYERS[top] > 0
    return f"{top} must not import {other} beside it" if peers and (top, other) not in SIDEWAYS else None


def wrong_library(where, library):
    top, clockless = parts(where)
    if library in HOMES and not any(
        where == home or (home.endswith("/") and where.startswith(home)) for home in HOMES[library]
    ):
        return f"{library} has no place here"
    if top in PURE and library not in sys.stdlib_module_names:
        return f"{top} must not import a library: {library}"
    return f"no clock, no world outside: {library}" if clockless and library in IMPURE_MODULES else None


def unseeded(tree):
    """Yield uses of the random module other than the type ``Random``, and ``Random()`` without a seed."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    module = any(alias.name == "random" for node in nodes for alias in node.names)  # else it is the name of a Random
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="random", names=names):
                yield from (node.lineno for alias in names if alias.name != "Random")
            case ast.Attribute(value=ast.Name(id="random"), attr=name) if module and name != "Random":
                yield node.lineno
            case ast.Call(func=function, args=[], keywords=[]) if ast.unparse(function) in {"Random", "random.Random"}:
                yield node.lineno


def opens_files(tree):
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return [node.lineno for node in names if node.func.id in {"open", "print", "input"}]


def check(where, source):
    """Return what a module at ``where`` (from the package's root, with slashes) does wrong."""
    tree = ast.parse(source)
    top, clockless = parts(where)
    if top not in LAYERS:
        return [f"{where}: {top} is in no layer"]
    found = []
    for line, target in imports(tree):
        head = target.split(".")[0]
        if not head:
            problem = "relative imports hide the direction"
        elif head == PACKAGE:
            problem = wrong_direction(top, target)
        else:
            problem = wrong_library(where, head)
        found += [f"{where}:{line}: {problem}"] if problem else []
    if clockless:
        found += [f"{where}:{line}: chance without a seed" for line in unseeded(tree)]
        found += [f"{where}:{line}: reads or writes" for line in opens_files(tree)]
    return found


MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def test_all_modules_keep_the_rules():
    problems = [problem for where in MODULES for problem in check(where, (ROOT / where).read_text())]
    assert not problems, "\n".join(problems)


def test_every_exception_is_in_use():
    seen = {
        (parts(where)[0], target.split(".")[1])
        for where in MODULES
        for _, target in imports(ast.parse((ROOT / where).read_text()))
        if target.startswith(f"{PACKAGE}.")
    }
    assert seen >= SIDEWAYS


def test_no_two_packages_may_import_each_other():
    assert not {(b, a) for a, b in SIDEWAYS} & SIDEWAYS


@pytest.mark.parametrize(
    ("where", "source", "said"),
    [
        ("core/gate.py", "from concur_proxy.config import Settings", "above"),
        ("windows/aimd.py", "import concur_proxy.gateway.handler", "above"),
        ("windows/aimd.py", "from concur_proxy import control", "above"),
        ("model.py", "from concur_proxy.core.gate import Gate", "above"),
        ("config/tree.py", "from concur_proxy.sim.engine import Engine", "beside it"),
        ("engines/vllm.py", "from concur_proxy.core.signals import SignalTracker", "beside it"),
        ("windows/aimd.py", "from concur_proxy.core.gate import Gate", "beside it"),
        ("observe/logs.py", "from concur_proxy.gateway.replies import reply", "beside it"),
        ("gateway/handler.py", "def f():\n    from concur_proxy.runtime import node", "above"),
        ("runtime/node.py", "from concur_proxy.cli import main", "above"),
        ("core/gate.py", "from concur_proxy.extras import more", "no layer"),
        ("extras/more.py", "", "no layer"),
        ("core/gate.py", "from . import sessions", "relative"),
        ("core/gate.py", "from ..config import Settings", "relative"),
        ("core/gate.py", "import orjson", "library"),
        ("engines/vllm.py", "from prometheus_client.parser import x", "no place"),
        ("windows/aimd.py", "import numpy as np", "library"),
        ("core/gate.py", "import asyncio", "no clock"),
        ("core/gate.py", "from time import monotonic", "no clock"),
        ("windows/aimd.py", "import logging", "no clock"),
        ("engines/vllm.py", "import socket", "no clock"),
        ("core/gate.py", "def f():\n    import threading", "no clock"),
        ("sim/engine.py", "import time", "no clock"),
        ("sim/engine.py", "from asyncio import sleep", "no clock"),
        ("sim/engine.py", "import random\nrandom.random()", "without a seed"),
        ("sim/engine.py", "from random import choice", "without a seed"),
        ("sim/engine.py", "import random\nrandom.Random()", "without a seed"),
        ("core/gate.py", "from random import Random\nRandom()", "without a seed"),
        ("core/gate.py", "print('x')", "reads or writes"),
        ("sim/workload.py", "open('x')", "reads or writes"),
        ("gateway/upstream.py", "import httpx", "no place"),
        ("control/loop.py", "from httpx import AsyncClient", "no place"),
        ("admin/reports.py", "import prometheus_client", "no place"),
        ("sim/exposition.py", "import prometheus_client", "no place"),
        ("gateway/handler.py", "from fastapi import FastAPI", "no place"),
        ("fleet/pool.py", "import redis.asyncio", "no place"),
    ],
)
def test_it_finds_what_is_wrong(where, source, said):
    (problem,) = check(where, source)
    assert problem.startswith(where)
    assert said in problem


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("core/gate.py", "import math\nfrom collections.abc import Mapping\nfrom concur_proxy.model import Usage"),
        ("core/gate.py", "from concur_proxy.core import placement\nfrom concur_proxy.windows.base import Unit"),
        ("config/tree.py", "import pydantic\nfrom concur_proxy.errors import ConfigError"),
        ("sim/engine.py", "from random import Random\nimport random\nRandom(1)\nrandom.Random(seed)"),
        ("sim/engine.py", "def f(random):\n    return random.random()"),
        ("sim/server/app.py", "import time, asyncio\nfrom fastapi import FastAPI"),
        (
            "runtime/node.py",
            "import time\nfrom concur_proxy.gateway import app\nfrom concur_proxy.config import Settings",
        ),
        ("bench/client.py", "import httpx"),
        ("cli.py", "from concur_proxy import __version__\nfrom concur_proxy.runtime import serve"),
        ("__main__.py", "from concur_proxy.cli import main"),
        ("__init__.py", "from importlib.metadata import version"),
    ],
)
def test_it_finds_nothing_wrong_with_what_is_right(where, source):
    assert check(where, source) == []
