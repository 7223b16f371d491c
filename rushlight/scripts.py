"""How the command line runs a script: as `python script args` would, recorded, in its own mode or
in the one that was asked for.

Invariant: whatever the script does, arguments, path and mode are as before when it has ended.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rushlight import config
from rushlight.observation import Recording


@contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """`eager`: compile() gives back what it was given. `compile`: the outermost calls of modules
    are compiled, beside what the program compiles itself. Empty: as the program says."""
    if mode == "eager":
        with config.changed(compile_disable=True):
            yield
    elif mode == "compile":
        with _modules_compiled():
            yield
    else:
        yield


def _for_gpu() -> Any:
    from rushlight.other_device import compiled_for_gpu

    return compiled_for_gpu()


@contextmanager
def _modules_compiled() -> Iterator[None]:
    from rushlight.dynamo.entry import OptimizedModule
    from rushlight.nn.module import Module
    from rushlight.pipeline import compile

    known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    plain, inside = Module.__call__, False

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside or isinstance(self, OptimizedModule):
            return plain(self, *args, **kwargs)
        inside = True
        try:
            if self not in known:
                known[self] = compile(_named(plain, type(self).__qualname__))
            return known[self](self, *args, **kwargs)
        finally:
            inside = False

    Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        Module.__call__ = plain  # type: ignore[method-assign]


def _named(call: Any, name: str) -> Any:
    """Module.__call__ as a function of its own, which records name by the module's class."""
    made = types.FunctionType(
        call.__code__, call.__globals__, call.__name__, call.__defaults__, call.__closure__
    )
    made.__kwdefaults__, made.__qualname__ = call.__kwdefaults__, f"{name}.{call.__name__}"
    return made


def run_script(
    script: str, args: list[str], mode: str = "", gpu_too: bool = False
) -> tuple[Recording, int]:
    """Runs a script as `python script args` would, recorded, in a mode (see `in_mode`). `gpu_too`:
    its graphs are compiled for a GPU as well. Returns the recording and the exit code. The script's
    own output goes where it always goes; a traceback is printed as Python prints it, without our
    frames."""
    import os

    recording = Recording(os.path.basename(script))
    with in_mode(mode), _for_gpu() if gpu_too else nullcontext():
        code = execute(script, args, recording)
    return recording, code


def run_torch_script(script: str, args: list[str], mode: str = "") -> tuple[Any, int]:
    """Runs a PyTorch script as it is, observed. Returns the recording (interop.torch_observe) and
    the exit code. Unsupported where torch is not here."""
    import os

    from rushlight.interop import torch_observe

    recording = torch_observe.TorchRecording(os.path.basename(script))
    with torch_observe.in_mode(mode):
        code = execute(script, args, recording)
    return recording, code


def execute(script: str, args: list[str], around: Any = None, module: bool = False) -> int:
    """Runs a script as `python script args` would (`module`: as `python -m script args`), within
    the context manager `around`. Returns the exit code."""
    import os
    import runpy

    argv, path0 = sys.argv, sys.path[0]
    place = os.getcwd() if module else os.path.dirname(os.path.abspath(script))
    sys.argv, sys.path[0] = [script, *args], place
    code = 0
    try:
        with around or nullcontext():
            if module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = _exit_code(end)
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        _print_traceback(error)
        code = 1
    finally:
        sys.argv, sys.path[0] = argv, path0
        sys.stdout.flush()
    return code


def run_as_torch(
    script: str, args: list[str], report: str | None = None, module: bool = False
) -> int:
    """Runs a script (or a module by its name) for which `import torch` means Rushlight; says what
    it asked for and is not here, and writes that to `report` as JSON: whenever a name is added, so
    that it is there however the program ends. Returns the exit code; 2 where the report cannot be
    written, before anything is run."""
    import os

    from rushlight.interop import shim
    from rushlight.interop.torch_children import same_in_children

    shim.install()
    process = os.getpid()

    def write(code: int | None = None) -> None:
        if report is not None and os.getpid() == process:
            _write_report(report, script, code, shim.missing.values())

    try:
        if report is None or os.path.isfile(report) or not os.path.exists(report):
            write()
            shim.listeners.append(write)
    except OSError as error:
        print(f"rushlight run: the report cannot be written: {error}", file=sys.stderr)
        return 2
    try:
        code = execute(script, args, same_in_children(), module)
    finally:
        shim.listeners.clear()
    missing = list(shim.missing.values())
    if missing and code:
        print(f"rushlight run: {len(missing)} names are not in Rushlight:", file=sys.stderr)
        for name, near, where in missing[:20]:
            print(f"  {name}{shim.near_text(near)}, asked for at {where}", file=sys.stderr)
    write(code)
    return code


def _write_report(report: str, script: str, code: int | None, missing: Iterable[Any]) -> None:
    """`code`: None while the program runs."""
    import json

    rows = [{**one._asdict(), "near": list(one.near)} for one in missing]
    with open(report, "w", encoding="utf-8") as file:
        json.dump({"script": script, "exit": code, "missing": rows}, file, indent=1)


def _exit_code(end: SystemExit) -> int:
    """As the interpreter does it: None is 0, a number itself, anything else is printed and 1."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException) -> None:
    """Without the frames that come before the script's own."""
    import traceback

    start = error.__traceback__
    while start is not None:
        file = start.tb_frame.f_code.co_filename
        if file != __file__ and "runpy" not in file:
            break
        start = start.tb_next
    traceback.print_exception(type(error), error, start)
