"""One data-parallel rank's part of a page on which all ranks of an engine stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from concur_proxy.engines.exposition import Page, Series

_RANK_LABELS = ("engine", "dp_rank")


@dataclass(frozen=True, slots=True)
class RankPage(Page):
    """Has the series of one rank, and those that belong to none."""

    rank: int = 0

    def get(self, name: str) -> tuple[Series, ...]:
        return tuple(one for one in Page.get(self, name) if _rank(one) in (None, str(self.rank)))


def of_rank(document: Any, rank: int) -> Any:
    """Return SGLang's JSON (``/v1/loads``, ``/server_info``) as one rank would tell it; anything else as it is."""
    if not isinstance(document, Mapping):
        return document
    loads = document.get("loads")
    if not isinstance(loads, list):
        return {**document, "dp_size": 1}
    own = [load for at, load in enumerate(loads) if isinstance(load, Mapping) and load.get("dp_rank", at) == rank]
    return {**document, "loads": own}


def _rank(series: Series) -> str | None:
    labels = series.labels
    return next((labels[name] for name in _RANK_LABELS if name in labels), None)
