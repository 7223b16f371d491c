"""Triton's compiler in a process of its own, for processes that use a GPU.

Once a process has launched a kernel through the driver, Triton 3.6's last MLIR pass fails there
without a diagnostic (seen on an H200 with driver 580; a process that only made a context compiles).
Beside that, it leaves the program's own threads alone. The worker starts at the first source that
no cache has, and ends with the process that started it.

    request = pickle of (sources, capability, debug)          both preceded by their length
    reply   = pickle of a list of images, or of an exception
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO

from rushlight.errors import CompilerBug

_LENGTH = 8


class Worker:
    """The process, started when it is first asked."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.lock = threading.Lock()
        self.owner = os.getpid()

    def start(self) -> None:
        """Starts it, if it is not there; it imports Triton at once."""
        if self.process is not None and self.owner == os.getpid():
            if self.process.poll() is None:
                return
            self.close()
        paths = [os.path.abspath(p) for p in sys.path]  # '' is the folder we stand in now
        code = f"import sys; sys.path[:] = {paths!r}\n"
        code += "from rushlight.runtime.triton_worker import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.owner = os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            self.close()
        self.process = None

    def close(self) -> int:
        """What is left of a process that has ended; its exit code."""
        assert self.process is not None
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        return self.process.wait()

    def compile(self, sources: Sequence[Any], capability: int, debug: bool) -> list[Any]:
        """The images of the sources. Raises what compiling raises, and CompilerBug where the
        process ended."""
        with self.lock:
            self.start()
            assert self.process is not None
            try:
                send(self.process.stdin, (list(sources), capability, debug))  # type: ignore[arg-type]
                answer = receive(self.process.stdout)  # type: ignore[arg-type]
            except (OSError, EOFError) as error:
                self.process.kill()
                code = self.close()
                self.process = None
                names = ", ".join(s.name for s in sources)
                text = f"the process that compiles for the GPU ended with {code} ({error!r}) at"
                raise CompilerBug("triton", f"{text} {names}", "") from None
        if isinstance(answer, BaseException):
            raise answer
        made: list[Any] = answer
        return made


def send(stream: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """EOFError where the other side is gone."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError("nothing more")
    data = stream.read(int.from_bytes(head, "little"))
    return pickle.loads(data)  # of our own process's making


def serve() -> None:
    """What the worker does, until its input ends. What Triton prints goes to stderr."""
    from rushlight.runtime import triton

    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    triton.prepared(90, 4)
    while True:
        try:
            sources, capability, debug = receive(requests)
        except EOFError:
            return
        try:
            answer: Any = triton.compile_here(sources, capability, debug)
        except Exception as error:  # noqa: BLE001  (the other side raises it)
            answer = error
        try:
            send(replies, answer)
        except Exception:  # noqa: BLE001  (an exception that cannot be pickled)
            send(replies, CompilerBug("triton", str(answer), ""))


worker = Worker()
