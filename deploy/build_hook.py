"""Compiles the data path as the wheel is built, with mypyc: the same Python, three times as fast.

Hatch runs this for wheels (``pip install .``), never for editable installs, whose compiled files would go stale. Where
there is no C compiler the wheel is pure Python and does the same, slower: ``concur-proxy --version`` tells which it is.

    CONCUR_PROXY_COMPILE=no        pure Python, whatever there is
    CONCUR_PROXY_COMPILE=require   fail where it cannot be compiled
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WISH = "CONCUR_PROXY_COMPILE"
LIBRARY = "concur_proxy"
MYPY_CONFIG = """[mypy]
python_version = {version}
ignore_missing_imports = true
follow_imports = silent
"""
SETUP = """
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from mypyc.build import mypycify
from setuptools import setup
from setuptools._distutils.ccompiler import CCompiler


def compile(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0, extra_preargs=None,
            extra_postargs=None, depends=None):
    # As setuptools does it, but several files at a time.
    _, objects, extra_postargs, pp_opts, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs)
    cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = [pool.submit(self._compile, name, *build[name], cc_args, extra_postargs, pp_opts) for name in build]
    for each in done:
        each.result()
    return objects


CCompiler.compile = compile
modules = mypycify(
    ["--config-file=mypy.ini", *sys.argv[1:]],
    opt_level="2", debug_level="0", multi_file=True, group_name="{library}",
)
sys.argv[1:] = ["-q", "build_ext", "--inplace"]
setup(name="{library}", packages=[], py_modules=[], ext_modules=modules)
"""


class CustomBuildHook(BuildHookInterface[Any]):
    """``modules`` in pyproject.toml: glob patterns of what is compiled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wish = os.environ.get(WISH, "try")
        if version == "editable" or wish == "no":
            return
        self._work = tempfile.mkdtemp(prefix="concur-proxy-build-")
        try:
            libraries = compiled(Path(self.root), Path(self._work), self.config["modules"])
        except (OSError, subprocess.CalledProcessError) as error:
            if wish == "require":
                raise
            self.app.display_warning(f"The data path could not be compiled, so it stays pure Python, slower: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): str(path.relative_to(self._work)) for path in libraries})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        shutil.rmtree(getattr(self, "_work", ""), ignore_errors=True)


def compiled(root: Path, work: Path, patterns: list[str]) -> list[Path]:
    """Compile the modules that ``patterns`` name into ``work``, apart from the sources; return the libraries."""
    modules = sorted({str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)})
    shutil.copytree(root / "concur_proxy", work / "concur_proxy", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (work / "mypy.ini").write_text(MYPY_CONFIG.format(version=f"{sys.version_info[0]}.{sys.version_info[1]}"))
    (work / "setup.py").write_text(SETUP.replace("{library}", LIBRARY))
    subprocess.run([sys.executable, "setup.py", *modules], cwd=work, check=True)
    return [path for path in work.rglob("*.so") if "build" not in path.relative_to(work).parts]
