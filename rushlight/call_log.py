"""Eager mode's logs: what RUSHLIGHT_LOGS, RUSHLIGHT_COMPILE_DEBUG and RUSHLIGHT_NVTX ask of it.

Takes native records of calls; gives trace records: each call indented as it nests, each plan that
was made, each kernel and library routine once. Invariant: nothing is recorded where none of these
settings asks for it.
"""

from __future__ import annotations

from typing import Any

from rushlight import trace


def start_logs() -> None:
    """What RUSHLIGHT_LOGS, RUSHLIGHT_COMPILE_DEBUG and RUSHLIGHT_NVTX ask of eager mode: this
    thread's operator calls are recorded, and logged when the process ends or a recording begins or
    ends. Called once the native core is loaded, where one of these settings is there."""
    import atexit

    from rushlight import config
    from rushlight.profiler import recording

    trace.start_outputs()
    if config.flags.nvtx:
        from rushlight.profiler import nvtx

        nvtx.start()
    wanted = {"ops", "plans", "kernels", "libraries", "all"}
    if config.flags.compile_debug or wanted & set(config.flags.logs.replace(" ", "").split(",")):
        recording.always(_log_calls)
        atexit.register(recording.drain)


def _log_calls(batch: list[Any]) -> None:
    """Trace records from native ones: each call, indented as it nests; each plan that was made;
    each kernel and library routine once."""
    from rushlight.report.records import read_calls
    from rushlight.report.words import ns

    for call in read_calls(batch):
        facts: dict[str, Any] = {
            "took": ns(call.ns),
            "plan": _PLANS[call.hit],
            "ran": call.ran,
            "at": call.where,
        }
        given = {name: value for name, value in facts.items() if value}
        inputs, outputs = (", ".join(map(str, side)) for side in (call.inputs, call.outputs))
        name = f"{call.operator}({inputs}) -> {outputs}"
        trace.emit("dispatch", "  " * call.depth + name, **given)
        if call.hit is False:
            trace.emit("plan", name, f"made: {call.ran}")
        if call.route in ("kernel", "library") and call.ran not in _logged:
            _logged.add(call.ran)
            _log_ran(call.route, call.ran, call.operator)


def _log_ran(route: str, key: str, operator: str) -> None:
    if route == "library":
        trace.emit("library", key, f"first called by {operator}")
        return
    try:
        from rushlight.kernel_sources import Sources

        view = Sources([]).find(key)[-1]
    except KeyError:
        trace.emit("kernel", key, operator=operator)
    else:
        trace.emit("kernel", key, view.text, view.origins, operator=operator)


_logged: set[str] = set()
_PLANS = {None: "", True: "found", False: "made"}
