"""Photograph the live page while agents arrive faster than they fit: on a desktop in light, on a phone in dark colours.

python -m bench.live_page docs/pictures

Real Chromium looks at a real proxy before two embedded engines. Takes eight minutes.
"""

from __future__ import annotations

import argparse
import io
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.services.monitored import Agents, Habits

ENGINE = EngineOptions(port=0, model="m", kv_tokens=90_000, speed=4.0)
HABITS = Habits(words=1500, think_s=2.0, turns=10, result=150, tokens=150)
GROUPS, GROUP, EVERY_S = 12, 4, 20
STAYS_S = 240
"""All of them, before the picture is taken."""


@dataclass(frozen=True)
class Shot:
    name: str
    width: int
    height: int
    colours: Literal["light", "dark"]
    scale: float = 1.0


SHOTS = (Shot("live-page", 1180, 1010, "light"), Shot("live-page-phone", 390, 800, "dark", 1.5))


@contextmanager
def busy() -> Iterator[str]:
    """Yield the address of a proxy that has come to be busy."""
    with ExitStack() as stack:
        engines = [stack.enter_context(EngineServer(ENGINE)) for _ in range(2)]
        proxy = stack.enter_context(ProxyProcess([engine.url for engine in engines], flags=[*QUIET]))
        for group in range(GROUPS):
            stack.enter_context(Agents(proxy.url, GROUP, HABITS, first=group * GROUP))
            time.sleep(EVERY_S)
        time.sleep(STAYS_S)
        yield proxy.url


def take(browser: Browser, url: str, shot: Shot, path: Path) -> None:
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme=shot.colours,
        device_scale_factor=shot.scale,
    )
    page = context.new_page()
    page.goto(f"{url}/concur/ui")
    page.locator("#plot-sessions [data-line=active][d*=L]").wait_for(state="attached")
    page.locator("#sessions tr").first.wait_for()
    # Few colours are enough for it, and make it small.
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(128).save(path, optimize=True)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with busy() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for shot in SHOTS:
            take(browser, url, shot, folder / f"{shot.name}.png")
        browser.close()


if __name__ == "__main__":
    main()
