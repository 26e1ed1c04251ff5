"""Write the dashboards, and what docs/observability.md says of each panel: ``python deploy/grafana/generate.py``.

A test fails where this was forgotten. Grafana's own types are used (grafana-foundation-sdk, extra dev).
"""  # noqa: INP001 - a script

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from boards import BOARDS, HEAT, STAT, STATES, Board, Panel  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "observability.md"
START, END = "<!-- generated: panels -->\n", "<!-- end -->\n"
SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="$datasource")
HEIGHTS = {STAT: 4}
HEIGHT = 8


def render(board: Board) -> str:
    """Return a board as Grafana reads it."""
    grafana = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags(["concur-proxy"])
        .time("now-1h", "now")
        .refresh("10s")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(
            build.DashboardLink("Concur")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags(["concur-proxy"])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in _variables():
        grafana = grafana.with_variable(variable)
    number = 0
    for row in board.rows:
        grafana = grafana.with_row(build.Row(row.title))
        for panel in row.panels:
            number += 1
            grafana = grafana.with_panel(_panel(panel).id(number))
    return json.dumps(grafana.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variables() -> Iterator[Any]:
    yield build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    yield _choice("job", "Job", "label_values(concur_build_info, job)")
    yield _choice("backend", "Backend", 'label_values(concur_backend_up{job=~"$job"}, backend)')


def _choice(name: str, label: str, query: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    )


def _panel(panel: Panel) -> Any:
    builders = {STAT: _stat, STATES: _states, HEAT: _heat}
    made = builders.get(panel.kind, _lines)(panel)
    made = made.title(panel.title).description(panel.look_for).datasource(SOURCE).unit(panel.unit)
    made = made.grid_pos(dashboard.GridPos(h=HEIGHTS.get(panel.kind, HEIGHT), w=panel.width, x=0, y=0))
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = Dataquery().expr(query.expr).ref_id(letter).datasource(SOURCE).range()
        if "histogram_quantile" in query.expr:
            target = target.exemplar(True)
        if query.legend:
            target = target.legend_format(query.legend)
        if panel.kind == HEAT:
            target = target.format(PromQueryFormat.HEATMAP)
        made = made.with_target(target)
    return made


def _lines(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .min(0)
        .line_width(2)
        .show_points(common.VisibilityMode.NEVER)
        .fill_opacity(40 if panel.stacked else 8)
        .legend(
            looks.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(looks.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    )
    if panel.stacked:
        made = made.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL))
    return made if panel.top is None else made.max(panel.top)


def _stat(panel: Panel) -> stat.Panel:
    steps = [dashboard.Threshold(value=value, color=color) for value, color in panel.steps]
    return (
        stat.Panel()
        .graph_mode(common.BigValueGraphMode.AREA)
        .color_mode(common.BigValueColorMode.VALUE)
        .reduce_options(looks.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps))
    )


def _states(_: Panel) -> statetimeline.Panel:
    return statetimeline.Panel().show_value(common.VisibilityMode.NEVER).row_height(0.8)


def _heat(_: Panel) -> heatmap.Panel:
    return heatmap.Panel().calculate(False)


def render_panels(boards: Iterable[Board] = BOARDS) -> str:
    """Return, for each panel, what to look for."""
    parts = []
    for board in boards:
        parts.append(f"### {board.title.removeprefix('Concur / ')}\n\n{board.about}\n")
        for row in board.rows:
            rows = [f"| {panel.title} | {panel.look_for} |" for panel in row.panels]
            parts.append("\n".join([f"**{row.title}**\n", "| panel | what to look for |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def main() -> None:
    for board in BOARDS:
        (HERE / "dashboards" / f"{board.uid}.json").write_text(render(board))
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(f"{before}{START}\n{render_panels()}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
