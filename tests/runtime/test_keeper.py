"""The file of what laws have learned: kept whole, and ignored with a warning where it is no good."""

import asyncio
import json
import logging
import time

import pytest

from concur_proxy.model import BackendId
from concur_proxy.runtime.keeper import OLDEST_S, Keeper

A, B = BackendId("a"), BackendId("b")
STATE = {"law": "meanfield", "learned": {"version": 1}}


def keeper(path, states=None):
    return Keeper(path, lambda: states or {})


def written(path, **fields):
    document = {"version": 1, "saved_at": time.time(), "backends": {A: STATE}} | fields
    path.write_text(json.dumps(document))
    return path


def test_what_is_saved_is_there_after_a_restart(tmp_path):
    path = tmp_path / "new folder" / "state.json"
    keeper(path, {A: STATE}).save()
    after = keeper(path)
    assert after.kept(A) == STATE
    assert after.kept(B) is None
    assert [each.name for each in path.parent.iterdir()] == ["state.json"]


def test_backends_that_are_not_here_now_stay_in_the_file(tmp_path):
    path = written(tmp_path / "state.json")
    keeper(path, {B: STATE}).save()
    assert set(json.loads(path.read_text())["backends"]) == {A, B}


def test_without_a_file_there_is_nothing_and_no_warning(tmp_path, caplog):
    assert keeper(tmp_path / "none.json").kept(A) is None
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("[]", "not a state file"),
        ('{"version": 1, "saved_at"', "delimiter"),
        ('{"version": 1}', "no saved_at"),
        ('{"version": 99, "saved_at": 1, "backends": {}}', "version 1"),
        ('{"version": 1, "saved_at": 1, "backends": {}}', "older than 30 days"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_state_file_is_ignored_with_a_warning(tmp_path, caplog, text, words):
    path = tmp_path / "state.json"
    path.write_text(text)
    assert keeper(path).kept(A) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert words in record.getMessage()
    assert str(path) in record.getMessage()


def test_bytes_that_are_no_text_are_ignored_as_well(tmp_path, caplog):
    path = tmp_path / "state.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert keeper(path).kept(A) is None
    assert "ignored" in caplog.text


def test_a_state_is_old_after_a_month(tmp_path):
    assert keeper(written(tmp_path / "new", saved_at=time.time() - OLDEST_S + 60)).kept(A) == STATE
    assert keeper(written(tmp_path / "old", saved_at=time.time() - OLDEST_S - 60)).kept(A) is None


def test_a_backend_whose_state_is_none_has_none(tmp_path):
    assert keeper(written(tmp_path / "state", backends={A: 7})).kept(A) is None


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    keeper(tmp_path / "file" / "state.json", {A: STATE}).save()
    assert "cannot write" in caplog.text


def test_stopping_writes_once_more(tmp_path):
    path = tmp_path / "state.json"

    async def scenario():
        one = keeper(path, {A: STATE})
        one.start()
        await one.stop()

    asyncio.run(scenario())
    assert keeper(path).kept(A) == STATE


def test_what_never_ran_writes_nothing(tmp_path):
    asyncio.run(keeper(tmp_path / "state.json", {A: STATE}).stop())
    assert not (tmp_path / "state.json").exists()
