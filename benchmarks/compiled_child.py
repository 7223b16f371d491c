"""One process of `benchmarks.compiled`: one peer, one workload. Prints one JSON line.

    python -P benchmarks/compiled_child.py PEER WORKLOAD SECONDS_FACTOR

PEER is `rushlight`, `torch`, `rushlight-compile`, `torch-compile`, `torch-compile:MODE` (a mode of
torch.compile's, or `freezing`) or `jax`.
"""

import importlib
import json
import sys
import time
from pathlib import Path

BEGUN = time.perf_counter()
sys.path.append(str(Path(__file__).resolve().parents[1]))


def steps(peer: str, name: str):
    """(case, step) of a peer; what a workload yields first."""
    if peer == "jax":
        from benchmarks import jax_workloads

        return jax_workloads.WORKLOADS[name]()
    package, _, how = peer.partition("-compile")
    torch = importlib.import_module(package)
    importlib.import_module(f"{package}.nn")
    importlib.import_module(f"{package}.optim")
    from benchmarks import workloads

    if "-compile" in peer:
        mode = how.removeprefix(":") or None
        if mode == "freezing":
            torch._inductor.config.freezing, mode = True, None
        given = {} if mode is None else {"mode": mode}
        workloads.wrap = lambda function: torch.compile(function, **given)
    return next(workloads.GROUPS[name].cases(torch))


def main() -> None:
    peer, name, factor = sys.argv[1], sys.argv[2], float(sys.argv[3])
    from benchmarks.measure import fingerprint, per_call, status
    from benchmarks.workloads import GROUPS

    seconds = GROUPS[name].seconds * factor
    try:
        case, step = steps(peer, name)
        ready = time.perf_counter()
        value = step()
        first = time.perf_counter() - ready
        row = {
            "case": case,
            "start_s": ready - BEGUN,
            "first_s": first,
            "until_result_s": time.perf_counter() - BEGUN,
            "fingerprint": fingerprint(value),
        }
        measured = per_call(step, seconds)
        row |= {"us": measured["us"], "p90_us": measured["p90_us"], "peak_mb": status("VmHWM")}
    except Exception as error:
        row = {"case": name, "error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    print("CASE " + json.dumps({"peer": peer, "benchmark": name, **row}), flush=True)


if __name__ == "__main__":
    main()
