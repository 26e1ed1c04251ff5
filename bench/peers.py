#!/usr/bin/env python3
"""Installs the proxies that ``bench/proxy_overhead.py`` compares with, each into an environment of its own.

    python bench/peers.py install                  # all
    python bench/peers.py install vllm-router      # some
    python bench/peers.py list                     # what is there

They go to ~/.cache/concur-peers, or where CONCUR_PEERS says. nginx comes from the system's packages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import nginx
from bench.overhead.ways import CACHE, installed_version

PEERS = {"vllm-router": "vllm-router", "sglang-router": "sglang-router", "litellm": "litellm[proxy]"}
"""What pip installs, by the name of the way."""


def install(cache: Path, name: str) -> None:
    folder = cache / name
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", PEERS[name]], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("install", "list"))
    parser.add_argument("names", nargs="*", help="default: all", metavar="NAME")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the environments (default: %(default)s)")
    given = parser.parse_args()
    if unknown := set(given.names) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; these are: {', '.join(PEERS)}")
    for name in given.names or PEERS:
        if given.what == "install":
            install(given.cache, name)
        version = installed_version(given.cache / name / "bin" / "python", name)
        print(f"{name}: {version or 'not installed'}")
    print(f"nginx: {nginx.version() or 'not installed'}")


if __name__ == "__main__":
    main()
