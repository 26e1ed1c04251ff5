"""What every picture begins and ends with: whether one can be written, a figure to draw on, and the file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from concur_proxy.errors import ConfigError

DPI = 120


def figure(width: float = 1.0, height: float = 1.0) -> Any:
    """Return a matplotlib figure of so many inches, without a window; ``ConfigError`` where matplotlib is missing."""
    try:
        module = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'concur-proxy[plot]'") from None
    return module.Figure(figsize=(width, height), layout="constrained")


def check(path: Path, *, option: str = "") -> None:
    """Find out beforehand whether a picture can be written there; ``ConfigError`` where it cannot.

    ``option``: what named the path, for the message.
    """
    known = figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in known:
        kinds = ", ".join(f".{kind}" for kind in sorted(known))
        raise ConfigError(f"{option} {path}: must end in one of {kinds}".lstrip())
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}".lstrip())


def save(drawn: Any, path: Path, *, option: str = "") -> None:
    """Write a figure; ``ConfigError`` where that does not work."""
    try:
        drawn.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option} {path}: {error}".lstrip()) from None
