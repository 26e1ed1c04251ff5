"""SGLang's HTTP server on a machine without a GPU, in the foreground; flags are SGLang's own.

Runs in the engine's environment. SGLang imports kernels for GPUs as it starts, and calls none of them where device,
attention and sampling are plain torch. Modules of these names are placeholders here: anything may be looked up in them.
SGLang's worker processes run the top of this file before anything else, as children of ``multiprocessing`` do.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types

ABSENT = frozenset({"flashinfer", "sgl_kernel", "torchvision"})


class Nothing:
    """Stands for a function, a decorator, a constant or a namespace that nobody uses in the end."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *arguments: object, **options: object) -> object:
        as_decorator = len(arguments) == 1 and callable(arguments[0]) and not options
        return arguments[0] if as_decorator else Nothing()

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __getitem__(self, _: object) -> Nothing:
        return Nothing()

    def __iter__(self) -> object:
        return iter(())

    def __or__(self, other: object) -> object:
        return other

    __ror__ = __or__


class Names(type):
    """Of classes whose every attribute is its own name: enumerations, among others."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class Placeholder(types.ModuleType):
    """A module that has whatever it is asked for: classes under capitalised names, else ``Nothing``."""

    __version__ = "0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if not name[0].isupper():
            return Nothing()
        made = Names(name, (), {"__init__": Nothing.__init__, "__class_getitem__": classmethod(lambda cls, _: cls)})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        absent = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Placeholder(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.append(Finder())

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(sys.argv[1:]))
    finally:
        import os

        kill_process_tree(os.getpid(), include_parent=False)
