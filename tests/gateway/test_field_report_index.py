"""FIELD_REPORTS.md names tests that exist, for every kind."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INDEX = (ROOT / "tests/gateway/FIELD_REPORTS.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", INDEX)))
ROWS = [line for line in INDEX.splitlines() if line.startswith("| ") and not line.startswith("| kind |")]


@functools.cache
def names_in(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_every_test_that_is_named_exists(path, name):
    assert name in names_in(path)


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_every_kind_names_a_test(row):
    assert re.search(r"`tests/[\w/]+\.py::\w+`", row)
