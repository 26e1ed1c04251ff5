"""What stands on the dashboards; Grafana's JSON is made of this by ``generate.py``."""

from boards.base import HEAT, STAT, STATES, Board, Panel
from boards.clients import CLIENTS
from boards.control import CONTROL
from boards.fleet import FLEET
from boards.overview import OVERVIEW

BOARDS = (OVERVIEW, CONTROL, FLEET, CLIENTS)

__all__ = ["BOARDS", "HEAT", "OVERVIEW", "STAT", "STATES", "Board", "Panel"]
