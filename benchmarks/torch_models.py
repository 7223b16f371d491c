"""torch.compile(model, backend="rushlight") over the models of `torch_zoo.py`.

    python -m benchmarks.torch_models run RESULTS.jsonl [--only TEXT] [--inductor] [--limit SECONDS]
    python -m benchmarks.torch_models table RESULTS.jsonl > docs/torch-models.md

Each model runs in a process of its own: forward in evaluation mode and one training step, against
torch's eager mode on the same seeds. With `--inductor` Inductor compiles the same model in a second
process, both with empty caches of their own, and the times are comparable. One JSON line for each
model and backend.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
BOUND, SLOW = 1e-4, 1.2  # gradients and times, of eager mode's, beyond which a model is named


def run(options: argparse.Namespace) -> None:
    from benchmarks.torch_zoo import ZOO

    results = Path(options.file)
    done, end = set(), time.perf_counter() + options.budget
    if results.exists():
        done = {(r["model"], r["backend"]) for r in map(json.loads, results.open())}
    for name in ZOO:
        if options.only and not any(wanted(name, part) for part in options.only.split(",")):
            continue
        for backend in ("rushlight", "inductor") if options.inductor else ("rushlight",):
            if (name, backend) in done or time.perf_counter() > end:
                continue
            row = one(name, backend, options)
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(summary(row), flush=True)


def wanted(name: str, part: str) -> bool:
    """A part of a name, or a whole one after "="."""
    return name == part[1:] if part.startswith("=") else part in name


def one(name: str, backend: str, options: argparse.Namespace) -> dict:
    """A child's row, or what became of it."""
    command = [sys.executable, "-P", str(HERE / "torch_models.py")]
    command += ["child", name, "--backend", backend, "--seconds", str(options.seconds)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_CACHE_DIR": folder,
                       "RUSHLIGHT_CACHE_DIR": folder}  # fmt: skip
        try:
            child = subprocess.run(command, capture_output=True, text=True, env=environment,
                                   timeout=options.limit)  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"model": name, "backend": backend, **now(), "error": f"over {options.limit} s"}
    for line in child.stdout.splitlines():
        if line.startswith("ROW "):
            return {**json.loads(line[4:]), **now()}
    last = child.stderr.strip().splitlines()[-1:] or [f"exit {child.returncode}"]
    told = {"error": last[0], "log": child.stderr[-4000:]}
    return {"model": name, "backend": backend, **now(), **told}


@functools.cache
def now() -> dict:
    """What a row says of its run: the day, the last commit of what is measured, the command."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", "../rushlight", "../csrc"]
        told = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
        return told.stdout.strip()

    commit = git("log", "-1", "--format=%h", "--abbrev=8") or "unknown"
    words = ["python -m benchmarks.torch_models", *sys.argv[1:2], "RESULTS.jsonl"]
    words += [w for w in ("--inductor",) if w in sys.argv]
    commit += "-dirty" if git("diff", "HEAD", "--name-only") else ""
    return {"day": time.strftime("%Y-%m-%d"), "commit": commit, "command": " ".join(words)}


def summary(row: dict) -> str:
    if "error" in row:
        return f"{row['model']} {row['backend']}: {row['error']}"
    keys = ("values", "gradients", "graphs", "parts", "ours", "left", "inputs",
            "from64", "double", "backend_time", "steady", "eager")  # fmt: skip
    return f"{row['model']} {row['backend']}: " + " ".join(f"{k}={row.get(k)}" for k in keys)


# ---- the table


def table(options: argparse.Namespace) -> None:
    """The page: every model, and beside Inductor those that it compiled too."""
    from benchmarks.torch_zoo import ZOO

    rows = [json.loads(line) for file in options.files for line in open(file)]
    order = {name: i for i, name in enumerate(ZOO)}
    latest: dict = {}
    for r in rows:  # a row beside Inductor's is kept: the two are of one run
        key = (r["model"], r["backend"])
        if "error" in latest.get(key, {"error": 0}) or "--inductor" in r.get("command", ""):
            latest[key] = r
    ours = [r for (_, backend), r in latest.items() if backend == "rushlight"]
    ours.sort(key=lambda r: order.get(r["model"], len(order)))
    good = [r for r in ours if "error" not in r]
    pairs = [(r, latest[r["model"], "inductor"]) for r in good
             if "error" not in latest.get((r["model"], "inductor"), {"error": ""})]  # fmt: skip
    print(HEAD.format(**described(list(latest.values()))))
    shares = [share(r) for r in good]
    families = Counter(r["model"].partition("/")[0] for r in ours)
    print(f"{len(ours)} models ({', '.join(f'{n} of {k}' for k, n in families.items())}): "
          f"{len(good)} run; of {sum(r['ours'] for r in good)} nodes that are "
          f"Rushlight's and {sum(sum(r['left'].values()) for r in good)} that stay torch's, the "
          f"least share of ours in a model is {min(shares):.1%}.\nLargest relative difference from "
          f"eager mode: values in evaluation {bounded(good, 'values')}; in training "
          f"{bounded(good, 'training_values')}; gradients {bounded(good, 'gradients')}.\nOver "
          f"{SLOW} of eager mode's time: inference of "
          f"{slow(good, 0)}; training of {slow(good, 1)}.\n")  # fmt: skip
    over = [r for r in good if r["gradients"] > BOUND]
    if over:
        print(f"## Gradients over {BOUND:.0e}\n\n{OVER}\n")
        print("| model | ours from eager | inputs | eager from float64 | ours from float64 "
              "| eight more draws: eager from float64 | ours from float64 "
              "| in float64, ours from eager |")  # fmt: skip
        print("| --- " * 8 + "|")
    for r in over:
        nan = float("nan")
        theirs, mine = r.get("from64") or (nan, nan)
        print(
            f"| {r['model']} | {r['gradients']:.1e} | {r['inputs'].rpartition(',')[0]} "
            f"| {theirs:.1e} | {mine:.1e} | {spread(r, 0)} | {spread(r, 1)} "
            f"| {r.get('double') or nan:.0e} |"
        )
    if pairs:
        beside(pairs)
    print("\n## All models\n")
    print("| model | graphs | compiled parts | nodes ours | left to torch | values | gradients "
          "| trained on | compiling, s | steady / eager: inference, training |")  # fmt: skip
    print("| --- " * 10 + "|")
    for r in ours:
        if "error" in r:
            print(f"| {r['model']} | {r['error'][:120]} |" + " |" * 8)
            continue
        left = ", ".join(f"{n} x `{op}`" for op, n in sorted(r["left"].items())) or "none"
        ratios = ", ".join(f"{a / b:.2f}" for a, b in zip(r["steady"], r["eager"], strict=True))
        print(f"| {r['model']} | {r['graphs']} | {r['parts']} | {share(r):.1%} of "
              f"{r['ours'] + sum(r['left'].values())} | {left} | {r['values']:.0e} "
              f"| {r['gradients']:.0e} | {r['inputs']} | {sum(r['backend_time']):.1f} "
              f"| {ratios} |")  # fmt: skip
    missing = [name for name in ZOO if name not in {r["model"] for r in ours}]
    print(f"\nNot run: {', '.join(missing) or 'none of the zoo'}.")


HEAD = """# Models of transformers and timm through `torch.compile(model, backend="rushlight")`

Written by `python -m benchmarks.torch_models table` from runs of {commands} on {days} at
{commits}; {versions}, on the CPU, one thread. The models are those of
`benchmarks/torch_zoo.py`: small configurations with random weights, each in a process of
its own, forward in evaluation mode and a training step with the same seed as eager mode's,
from an empty cache. Differences are relative to the largest number of a tensor; for
gradients at least to a hundredth of the largest gradient. Compiling is what the backend
itself takes, torch's capture and derivatives apart. Times come from a machine that does
other work as well: only ratios say anything, and each backend's is taken to eager mode,
measured in turns with it.

A training step says something where its gradients are determined. Batch norms over few
values and signs at a relu's corner make some that rounding decides, in torch's eager mode
too. So one rule chooses every model's inputs, without the backend: the first of batches of
2, 4 and 8 from several seeds on which eager mode's gradients in float32 are within 2.5e-05
of float64's, also after inputs and parameters moved by a rounding error. Where none is, the
nearest is taken. "Trained on" has the choice and that distance.
"""
OVER = """Where a number in front of a relu, or two in a pool's window, are as near as a rounding
error, float32 decides which way a slope goes, and two right programs may decide it otherwise: one
such place in 65,536 is all that timm/resnest14d's difference comes from. So eager mode's own
distance from float64 stands beside ours, on these inputs and (least, median, largest) on eight more
draws of the same size. The last column has the same step with the model in float64 through the
backend: what is left there is what the operators do, without float32's rounding (torch's own
constants of float32, such as the sixth of its hard sigmoid's slope, are among it)."""


def spread(row: dict, which: int) -> str:
    """The least, middle and largest of the distances that more draws gave."""
    found = sorted(pair[which] for pair in row.get("draws") or [])
    if not found:
        return "not drawn"
    return f"{found[0]:.0e} .. {statistics.median(found):.0e} .. {found[-1]:.0e}"


def described(rows: list[dict]) -> dict:
    """Days, commits, commands and versions of the rows."""
    from importlib.metadata import version

    said = {key: sorted({r[key] for r in rows if key in r}) for key in ("day", "commit", "command")}
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "timm"))
    return {
        "days": ", ".join(said["day"]),
        "commits": ", ".join(said["commit"]),
        "commands": " and ".join(f"`{c}`" for c in said["command"]),
        "versions": packages,
    }


def beside(pairs: list[tuple[dict, dict]]) -> None:
    """What both backends compiled in one run, each from an empty cache."""
    print("\n## Beside Inductor, in the same run\n")
    print("| model | compiling, s: inference, training | Inductor's | ratio "
          "| steady, ms: inference, training | Inductor's | ratios |")  # fmt: skip
    print("| --- " * 7 + "|")
    firsts, steadies = [], []
    for a, b in pairs:
        firsts.append(sum(a["backend_time"]) / sum(b["backend_time"]))
        # Each against eager mode in its own process: what else the machine did falls out.
        both = [x / e / (y / f) for x, e, y, f in
                zip(a["steady"], a["eager"], b["steady"], b["eager"], strict=True)]  # fmt: skip
        steadies.append(both)
        print(f"| {a['model']} | {listed(a['backend_time'], 1)} | {listed(b['backend_time'], 1)} "
              f"| {firsts[-1]:.2f} | {listed(a['steady'], 2, 1e3)} | {listed(b['steady'], 2, 1e3)} "
              f"| {listed(both, 2)} |")  # fmt: skip
    mean = statistics.geometric_mean
    infer, train = ([one[i] for one in steadies] for i in (0, 1))
    print(f"\nGeometric means over {len(pairs)} models: compiling {mean(firsts):.2f} of "
          f"Inductor's, steady {mean(infer + train):.2f} (inference {mean(infer):.2f}, training "
          f"{mean(train):.2f}).")  # fmt: skip


def bounded(rows: list[dict], key: str) -> str:
    """The largest number up to BOUND, and what is above it."""
    over = [f"{r['model']} ({r[key]:.1e})" for r in rows if r[key] > BOUND]
    text = f"{max((r[key] for r in rows if r[key] <= BOUND), default=0.0):.0e}"
    return text + (f", but for {len(over)} models: {', '.join(over)}" if over else "")


def slow(rows: list[dict], which: int) -> str:
    ratios = {r["model"]: r["steady"][which] / r["eager"][which] for r in rows}
    found = sorted((k for k in ratios if ratios[k] > SLOW), key=ratios.get, reverse=True)
    return ", ".join(f"{name} ({ratios[name]:.2f})" for name in found) or "none"


def share(row: dict) -> float:
    return float(row["ours"] / (row["ours"] + sum(row["left"].values())))


def listed(numbers: list[float], digits: int, scale: float = 1.0) -> str:
    return ", ".join(f"{n * scale:.{digits}f}" for n in numbers)


# ---- the process of one model


def child(options: argparse.Namespace) -> None:
    import warnings

    import torch

    from benchmarks.torch_zoo import ZOO

    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    model, inputs = ZOO[options.model]()
    row: dict = {"model": options.model, "backend": options.backend, "torch": torch.__version__}
    spent = Clock(torch, options.backend)

    model.eval()
    with torch.no_grad():
        want = tensors(torch, model(**inputs))
        compiled = torch.compile(model, backend=spent.backend)
        begin = time.perf_counter()
        got = tensors(torch, compiled(**inputs))
        row["first"] = [time.perf_counter() - begin]
        row["backend_time"] = [spent.take()]
        row["values"] = difference(got, want)
        again = difference(tensors(torch, compiled(**inputs)), want)
        row["values"] = max(row["values"], again)
        times = alternate(options.seconds, lambda: compiled(**inputs), lambda: model(**inputs))
        row["steady"], row["eager"] = [times[0]], [times[1]]

    model.train()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    inputs, truth, row["inputs"] = conditioned(torch, model, inputs)
    torch._dynamo.reset()  # other sizes are another program, not a graph for all sizes
    compiled = torch.compile(model, backend=spent.backend)

    def step(f, again=False):
        if not again:
            model.load_state_dict(state)
        made = trained(torch, model, f, inputs)
        if again:
            return None
        buffers = [b.clone().float() for b in model.buffers() if b.is_floating_point()]
        return made[0] + buffers, made[1]

    want, slopes = step(model)
    begin = time.perf_counter()
    got, ours = step(compiled)
    row["first"].append(time.perf_counter() - begin)
    row["backend_time"].append(spent.take())
    row["training_values"] = difference(got, want, 1e-2)  # means of what is centred are 0
    row["gradients"] = difference(ours, slopes, floor_of(slopes))
    if options.backend == "rushlight":
        pairs = zip(got + ours, want + slopes, strict=True)
        assert all(strides(a) == strides(b) for a, b in pairs)
    times = alternate(options.seconds, lambda: step(compiled, True), lambda: step(model, True))
    row["steady"].append(times[0])
    row["eager"].append(times[1])
    if options.backend == "rushlight":
        from rushlight.interop.torch_backend import REPORTS

        left: dict[str, int] = {}
        for report in REPORTS:
            for op, count in report.left.items():
                left[op] = left.get(op, 0) + count
        row.update(graphs=len(REPORTS), parts=sum(r.parts for r in REPORTS), left=left,
                   ours=sum(r.ours for r in REPORTS))  # fmt: skip
        if row["gradients"] > BOUND and truth is not None:
            row["from64"] = [difference(g, truth, floor_of(truth)) for g in (slopes, ours)]
            row["draws"] = draws(torch, model, state, compiled, inputs)
            model.load_state_dict(state)
            row["double"] = in_double(torch, model, spent.backend, inputs)
    print("ROW " + json.dumps(row), flush=True)


def draws(torch, model, state: dict, compiled, inputs: dict) -> list:
    """Eager mode's and the backend's distance from float64, for eight more draws of inputs."""
    import copy

    found, double = [], copy.deepcopy(model).double()
    for seed in range(11, 19):
        drawn = redrawn(torch, inputs, len(next(iter(inputs.values()))), seed)
        double.load_state_dict(state)
        with same_draws(torch):
            truth = trained(torch, double, double, widened(torch, drawn))[1]
        apart = []
        for f in (model, compiled):
            model.load_state_dict(state)
            slopes = trained(torch, model, f, drawn)[1]
            apart.append(difference(slopes, truth, floor_of(truth)))
        found.append(apart)
    return found


def trained(torch, model, f, inputs) -> tuple[list, list]:
    """The floating results and the parameters' gradients of one training step."""
    model.zero_grad()
    torch.manual_seed(3)
    outs = [x for x in tensors(torch, f(**inputs)) if x.requires_grad]
    sum(loss(torch, x) for x in outs).backward()
    slopes = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [x.detach() for x in outs], slopes


def conditioned(torch, model, inputs) -> tuple[dict, list | None, str]:
    """Inputs of a training step that say something about a compiler: the first of CANDIDATES on
    which torch's eager mode itself, in float32, is within a quarter of BOUND of float64, and stays
    so where inputs and parameters move by a rounding error; where there are none, those on which it
    is nearest. Nothing of the backend has a say. The inputs, the gradients in float64 (None where
    torch does not run the model so) and what was chosen."""
    import copy

    best = None
    double, moving = copy.deepcopy(model).double(), copy.deepcopy(model)
    for batch, seed in CANDIDATES:
        drawn, apart = redrawn(torch, inputs, batch, seed), 0.0
        try:
            with same_draws(torch):
                truth = trained(torch, double, double, widened(torch, drawn))[1]
            for again in range(3):
                copied = moved(torch, drawn, again)
                moving.load_state_dict(moved(torch, model.state_dict(), again))
                theirs = trained(torch, moving, moving, copied)[1]
                apart = max(apart, difference(theirs, truth, floor_of(truth)))
                if apart > BOUND / 4:
                    break
        except (RuntimeError, AssertionError) as error:
            return inputs, None, f"as in the zoo; no float64: {str(error).splitlines()[0][:80]}"
        if best is None or apart < best[0]:
            best = apart, drawn, truth, f"batch {batch}, seed {seed}, eager {apart:.0e}"
        if apart <= BOUND / 4:
            break
    return best[1:]


def moved(torch, values: dict, again: int) -> dict:
    """Numbers that each moved by about a rounding error of float32, or not where again is 0."""
    torch.manual_seed(again)
    return {k: x * (1 + 2**-23 * torch.randn_like(x)) if again and x.is_floating_point() else x
            for k, x in values.items()}  # fmt: skip


# batch (2 is the zoo's) and seed; 0 is the zoo's own draw
CANDIDATES = [(2, seed) for seed in range(5)] + [(n, seed) for n in (4, 8) for seed in range(1, 5)]


def redrawn(torch, inputs: dict, batch: int, seed: int) -> dict:
    """Inputs of the zoo's kinds and another number of examples, from a seed."""
    if not seed:
        return inputs
    torch.manual_seed(seed)
    made = {}
    for name, x in inputs.items():
        shape = (batch, *x.shape[1:])
        low, high = (0, 0) if x.is_floating_point() else (int(x.min()), int(x.max()) + 1)
        drawn = torch.randn(shape) if x.is_floating_point() else torch.randint(low, high, shape)
        made[name] = drawn.to(x.dtype)
    return made


def widened(torch, inputs: dict) -> dict:
    return {k: x.double() if x.is_floating_point() else x for k, x in inputs.items()}


def same_draws(torch):
    """Uniform numbers of float64 are drawn as those of float32: one seed gives one mask."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function is torch.rand and kwargs.get("dtype") is torch.float64:
                return function(*args, **{**kwargs, "dtype": torch.float32}).double()
            return function(*args, **kwargs)

    return Mode()


def in_double(torch, model, backend, inputs: dict) -> float:
    """The backend's gradients in float64, from torch's."""
    import copy

    torch._dynamo.reset()
    model = copy.deepcopy(model).double()
    with same_draws(torch):
        truth = trained(torch, model, model, widened(torch, inputs))[1]
    slopes = trained(torch, model, torch.compile(model, backend=backend), widened(torch, inputs))[1]
    return difference(slopes, truth, floor_of(truth))


def floor_of(slopes: list) -> float:
    """What gradients are at least compared with: a hundredth of the largest."""
    return 1e-2 * max((float(g.abs().max()) for g in slopes), default=0.0)


def strides(x) -> list:
    """Those that say something: of dims with more than one element."""
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1]


def loss(torch, x):
    """A mean with a weight for each element: squares of what a layer norm gives are constant, and
    their gradients nothing but rounding."""
    weights = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)
    return (x * weights + x * x / 4).mean()


class Clock:
    """A backend, and the time of its compilers: torch's capture and derivatives stand apart."""

    def __init__(self, torch, name: str) -> None:
        self.spent = 0.0
        if name == "inductor":
            from torch._inductor import compile_fx

            inner = self.timed(compile_fx.compile_fx_inner)
            self.backend = lambda graph, inputs: compile_fx.compile_fx(graph, inputs, inner)
        else:
            from rushlight.interop import torch_backend

            self.backend = torch_backend.rushlight
            torch_backend.compile_part = self.timed(torch_backend.compile_part)

    def timed(self, inner):
        def run(*a, **k):
            begin = time.perf_counter()
            try:
                return inner(*a, **k)
            finally:
                self.spent += time.perf_counter() - begin

        return run

    def take(self) -> float:
        spent, self.spent = self.spent, 0.0
        return spent


def tensors(torch, out) -> list:
    """The floating results of a model, in order."""
    if isinstance(out, torch.Tensor):
        return [out] if out.is_floating_point() else []
    if isinstance(out, dict):
        out = list(out.values())
    if isinstance(out, (tuple, list)):
        return [x for one in out for x in tensors(torch, one)]
    return []


def difference(got: list, want: list, floor: float = 0.0) -> float:
    """The largest difference, relative to the largest number of its tensor or to the floor."""
    assert [x.shape for x in got] == [x.shape for x in want]
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        if not b.numel():
            continue
        same = (a == b) | (a.isnan() & b.isnan())
        apart = (a - b).abs().masked_fill(same, 0.0)
        scale = max(float(b.nan_to_num(0, 0, 0).abs().max()), floor, 1e-9)
        worst = max(worst, float(apart.max()) / scale)
        if not float(apart.max()) >= 0:
            return float("inf")
    return worst


def alternate(seconds: float, *steps) -> list[float]:
    """The median time of each, taking turns, so that what else runs slows all alike."""
    times: list[list[float]] = [[] for _ in steps]
    end = time.perf_counter() + seconds
    while not times[0] or time.perf_counter() < end:
        for step, into in zip(steps, times, strict=True):
            begin = time.perf_counter()
            step()
            into.append(time.perf_counter() - begin)
    return [statistics.median(t) for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    words = parser.add_subparsers(required=True)
    word = words.add_parser("run")
    word.set_defaults(act=run)
    word.add_argument("file")
    word.add_argument("--only", default="")
    word.add_argument("--inductor", action="store_true")
    word.add_argument("--limit", type=float, default=280)
    word.add_argument("--budget", type=float, default=1e9, help="starts no model after so long")
    word.add_argument("--seconds", type=float, default=0.3)
    word = words.add_parser("table")
    word.set_defaults(act=table)
    word.add_argument("files", nargs="+")
    word = words.add_parser("child")
    word.set_defaults(act=child)
    word.add_argument("model")
    word.add_argument("--backend", default="rushlight")
    word.add_argument("--seconds", type=float, default=0.3)
    word.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    sys.path.append(str(HERE.parent))
    main()
