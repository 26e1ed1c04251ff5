"""One data-parallel rank's part of a page on which all ranks of an engine stand."""

from __future__ import annotations

from dataclasses import dataclass

from concur_proxy.engines.exposition import Page, Series

_RANK_LABELS = ("engine", "dp_rank")


@dataclass(frozen=True, slots=True)
class RankPage(Page):
    """Has the series of one rank, and those that belong to none."""

    rank: int = 0

    def get(self, name: str) -> tuple[Series, ...]:
        return tuple(one for one in Page.get(self, name) if _rank(one) in (None, str(self.rank)))


def _rank(series: Series) -> str | None:
    labels = series.labels
    return next((labels[name] for name in _RANK_LABELS if name in labels), None)
