"""Metrics pages for tests: whole scrapes of real engines, and short ones written in place."""

from pathlib import Path

from concur_proxy.engines.exposition import Page, read_page

DATA = Path(__file__).parent / "data"
VLLM = (DATA / "vllm-0.32.txt").read_text()
SGLANG = (DATA / "sglang-0.5.23.txt").read_text()


def page(text: str) -> Page:
    found = read_page(text)
    assert isinstance(found, Page)
    return found
