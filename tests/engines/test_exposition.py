import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from concur_proxy.engines.exposition import Page, Unreadable, read_page
from tests.engines.pages import SGLANG, VLLM, page


def ours(text):
    found = page(text)
    assert found.bad_lines == 0
    return sorted((n, sorted(s.labels.items()), repr(s.value)) for n in found for s in found.get(n))


def theirs(text, families=text_string_to_metric_families):
    samples = (s for f in families(text) for s in f.samples if not (s.name.endswith("_bucket") and s.labels))
    return sorted((s.name, sorted(s.labels.items()), repr(float(s.value))) for s in samples)


def escaped(value):
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
label_values = st.text(st.characters(codec="utf-8", exclude_characters="\r\x85\u2028\u2029"), max_size=12)
numbers = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**9), 10**9).map(str),
    st.sampled_from(["9.75e-06", "1E+3", "NaN", "+Inf", "-Inf", "0.0"]),
)
times = st.sampled_from(["", " 1395066363000", " -5"])
series = st.tuples(names, st.dictionaries(label_names, label_values, max_size=4), numbers, times)


@given(st.lists(series, min_size=1, max_size=8))
def test_reads_what_the_reference_reader_reads(lines):
    text = ""
    for name, labels, value, time in lines:
        block = ",".join(f'{label}="{escaped(content)}"' for label, content in labels.items())
        text += f"{name}{{{block}}} {value}{time}\n" if labels else f"{name} {value}{time}\n"
    assert ours(text) == theirs(text)


@pytest.mark.parametrize("text", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_reads_whole_scrapes_of_real_engines(text):
    assert ours(text) == theirs(text)


def test_reads_openmetrics_with_exemplars():
    text = (
        "# TYPE requests counter\n"
        'requests_total{path="/a"} 17.0 1520879607.789 # {trace="x} y"} 0.67\n'
        "# TYPE seconds histogram\n"
        'seconds_bucket{le="1.0"} 3 # {trace="abc"} 0.5 1520879607.7\n'
        'seconds_bucket{le="+Inf"} 4\n'
        "seconds_count 4\n"
        "seconds_sum 9.5\n"
        "# EOF\n"
    )
    assert ours(text) == theirs(text, openmetrics_families)


def test_reads_exponents_and_specials():
    found = page("tiny 9.75e-06\nhuge +Inf\nnothing NaN\n")
    assert found.get("tiny")[0].value == 9.75e-06
    assert found.get("huge")[0].value == math.inf
    assert math.isnan(found.get("nothing")[0].value)


def test_keeps_every_series_of_a_name_in_order():
    found = page('a{engine="0"} 1\nb 5\na{engine="1"} 2\n')
    assert [(s.labels, s.value) for s in found.get("a")] == [({"engine": "0"}, 1.0), ({"engine": "1"}, 2.0)]
    assert found.get("missing") == ()


def test_skips_and_counts_lines_that_make_no_sense():
    found = page('good 1\nword\nno_value{a="b"}\nbroken{a="b 3\nunder_score 1_000\nglued12\ngood 2\r\n')
    assert [s.value for s in found.get("good")] == [1.0, 2.0]
    assert set(found) == {"good"}
    assert found.bad_lines == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<!DOCTYPE html><html><body>Sign in</body></html>", "HTML page"),
        ("\n <html lang=en>\n<head><title>x</title>", "HTML page"),
        ('{"error": "not here"}', "JSON document"),
        ("", "empty page"),
        (" \n\n", "empty page"),
        ("# HELP a b\n# EOF\n", "page without metrics"),
        ("Not Found\n", "page without metrics"),
        ("\x00\x01\x02", "page without metrics"),
    ],
)
def test_says_what_a_page_is_that_is_none(text, reason):
    assert read_page(text) == Unreadable(reason)


@given(st.text(max_size=300))
def test_any_text_gives_a_page_or_a_reason(text):
    assert isinstance(read_page(text), Page | Unreadable)
