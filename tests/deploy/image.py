"""Builds the Dockerfile over a base made by ``prepare``, and runs the image as a container engine would: its user, its
environment, its command, a root that cannot be written to.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PREPARE = Path(__file__).parent / "prepare"
TAG = "localhost/concur-proxy-under-test"
START_S = 60


def missing() -> str | None:
    """Say what is missing to build an image here, None where nothing is."""
    if os.geteuid() != 0:
        return "building images without a daemon needs root"
    programs = [name for name in ("buildah", "debootstrap", "unshare") if shutil.which(name) is None]
    return f"there is no {programs[0]} here" if programs else None


class Builder:
    """buildah with the storage that has the base."""

    def __init__(self) -> None:
        made = subprocess.run([PREPARE], check=False, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        self.home = Path(made.stdout.strip())

    def run(self, *arguments: str) -> str:
        storage = ("--storage-driver", "vfs", "--root", f"{self.home}/storage", "--runroot", f"{self.home}/run")
        done = subprocess.run(["buildah", *storage, *arguments], check=False, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def build(self, **arguments: str) -> None:
        given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        self.run("bud", "-q", "--isolation", "chroot", "--format", "docker", *given, "-t", TAG, ".")

    @contextmanager
    def mounted(self):
        """A container of the image, and where its root is."""
        container = self.run("from", TAG)
        try:
            yield Path(self.run("mount", container)), json.loads(self.run("inspect", "--type", "image", TAG))
        finally:
            self.run("rm", container)

    def remove(self) -> None:
        self.run("rmi", "--prune", "--force")
        self.run("rmi", TAG)


ENTER = """
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/tmp"
mount -o remount,ro,bind "$1"
root=$1
shift
exec chroot --userspec=65532:65532 "$root" "$@"
"""


@contextmanager
def running(root: Path, config: dict, *arguments: str, **environment: str):
    """Run the image's entry point with a read-only root; yield its process and the file with its output."""
    env = {**dict(pair.split("=", 1) for pair in config["Env"]), **environment}
    inside = ["env", "-i", *(f"{name}={value}" for name, value in env.items()), *config["Entrypoint"], *arguments]
    with tempfile.NamedTemporaryFile() as log:
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", str(root), *inside]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process, Path(log.name)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_S)


def wait_for(what):
    """Return the first true value of ``what()``."""
    deadline = time.monotonic() + START_S
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
    return value
