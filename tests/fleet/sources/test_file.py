import asyncio

import pytest

from concur_proxy.fleet.sources.base import SourceError
from concur_proxy.fleet.sources.file import parse, watch_file
from tests.control.engines import eventually


@pytest.mark.parametrize(
    "text",
    [
        "- http://a:8000\n- {url: 'http://b:8000/v1', name: b}\n",
        "backends:\n- http://a:8000\n- {url: 'http://b:8000', name: b}\n",
        '["http://a:8000", {"url": "http://b:8000", "name": "b"}]',
    ],
)
def test_a_list_and_a_mapping_are_understood(text):
    first, second = parse(text)
    assert (first.id, second.id, second.url) == ("a:8000", "b", "http://b:8000")


@pytest.mark.parametrize("text", ["[]", "backends: []"])
def test_a_file_may_name_nobody(text):
    assert list(parse(text)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backends: {", "not valid YAML"),
        ("just a text", "must hold a list"),
        ("", "must hold a list"),
        ("# nothing yet\n", "must hold a list"),
        ("backends:\n", "must hold a list"),
        ("backend: ['http://a']", "must hold a list"),
        ("- ftp://a", "must be a URL"),
        ("- {url: 'http://a', nam: x}", "did you mean name"),
        ("- http://a\n- http://a", "two entries"),
    ],
)
def test_what_is_wrong_is_told(text, words):
    with pytest.raises(SourceError, match=words):
        parse(text)


def test_changes_are_told_and_a_broken_file_changes_nothing(tmp_path, caplog):
    path, told = tmp_path / "backends.yaml", []

    async def main():
        task = asyncio.create_task(
            watch_file(path, lambda name, found: told.append([one.id for one in found]), interval_s=0.005)
        )
        await eventually(lambda: "cannot be read: No such file" in caplog.text)
        path.write_text("- http://a:1\n")
        await eventually(lambda: told == [["a:1"]])
        path.write_text("- nonsense\n")
        await eventually(lambda: "must be a URL" in caplog.text)
        path.write_text("- http://b:1\n- http://a:1\n")
        await eventually(lambda: told[1:] == [["b:1", "a:1"]])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert len(told) == 2
    assert caplog.text.count("No such file") == 1
