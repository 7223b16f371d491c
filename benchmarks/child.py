"""One process: one peer, one benchmark. Prints one JSON line a case.

    python -P benchmarks/child.py PEER BENCHMARK SECONDS_FACTOR

Run as a file, so that the working folder does not stand before an installed rushlight; the
repository's root comes last on the path, and serves a tree built by `make dev`.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))


def namespace(peer: str):
    torch = importlib.import_module(peer)
    importlib.import_module(f"{peer}.nn")
    importlib.import_module(f"{peer}.optim")
    return torch


def main() -> None:
    peer, name, factor = sys.argv[1], sys.argv[2], float(sys.argv[3])

    from benchmarks.measure import fingerprint, per_call, status
    from benchmarks.workloads import GROUPS

    def say(**fields) -> None:
        print("CASE " + json.dumps({"peer": peer, "benchmark": name, **fields}), flush=True)

    try:
        torch = namespace(peer)
        benchmark = GROUPS[name]
        cases = benchmark.cases(torch)
    except Exception as error:  # a peer that lacks a thing is a row, not a crash
        say(case=name, error=f"{type(error).__name__}: {error}")
        return
    version = getattr(torch, "__version__", "?")
    while True:
        case = name
        try:
            case, step = next(cases)
            result = fingerprint(step()) if benchmark.check else []
            before = status("VmRSS")
            measured = per_call(step, benchmark.seconds * factor)
            say(
                case=case,
                version=version,
                fingerprint=result,
                grown_mb=status("VmRSS") - before,
                peak_mb=status("VmHWM"),
                **measured,
            )
        except StopIteration:
            return
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            say(case=case, error=f"{type(error).__name__}: {error} ({where.name}:{where.lineno})")
            if case == name:  # the generator itself failed: it is finished
                return


if __name__ == "__main__":
    main()
