"""Everything that needs the GPU, by one command; the result is kept as JSON lines.

    python -m benchmarks.device [--only PART,PART] [--torch] [--out FILE]

    prebuild    the kernel library as a pack (a minute or two on 16 cores), so that nothing is
                compiled on first use; RUSHLIGHT_CUDA_KERNELS, where it is set, instead
    operators   every operator's samples and gradients against the CPU (needs numpy)
    tests       pytest -m cuda tests/cuda: operators, gradients, runtime, errors, training
    cost        what one operator and one compiled call cost the host, in microseconds
    bandwidth   copies on the device and across, pinned and not
    cases       the models of the comparison, eager and compiled: first call, steady milliseconds
    training    a step of a 6-layer GPT

--torch runs the same with torch in a process of its own, for the ratios. Times on the device are
medians between events; a first call includes all compiling. Each line says what was measured; the
first one says when, where, on which card, of which commit.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("prebuild", "operators", "tests", "cost", "bandwidth", "cases", "training")


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip() if done.returncode == 0 else ""


class Log:
    """Lines for the file and the terminal."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8") if path else None

    def __call__(self, **facts):
        line = json.dumps(facts)
        print(line, flush=True)
        if self.file:
            self.file.write(line + "\n")
            self.file.flush()


def describe(log, torch, name):
    told = torch.cuda.get_device_properties(0)
    log(
        what="run",
        of=name,
        version=torch.__version__,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        card=told.name,
        capability=f"{told.major}.{told.minor}",
        memory_gib=round(told.total_memory / 2**30, 1),
        commit=output(["git", "rev-parse", "--short", "HEAD"]),
        command=" ".join(sys.argv),
        python=platform.python_version(),
    )


# ---- models: the same text for both


def models(torch):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h = h
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, s, d = x.shape
            parts = self.qkv(self.n1(x)).chunk(3, -1)
            q, k, v = (t.view(b, s, self.h, d // self.h).transpose(1, 2) for t in parts)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
            return x + self.down(F.gelu(self.up(self.n2(x))))

    class GPT(nn.Module):
        def __init__(self, layers=12, d=768, heads=12, words=50257, length=1024):
            super().__init__()
            self.tok, self.pos = nn.Embedding(words, d), nn.Embedding(length, d)
            self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
            self.n, self.head = nn.LayerNorm(d), nn.Linear(d, words, bias=False)

        def forward(self, ids):
            x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.n(x))

    return Block, GPT


def cases(torch):
    nn, F = torch.nn, torch.nn.functional
    Block, GPT = models(torch)
    half = torch.bfloat16

    def randn(*shape, dtype=torch.float32):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def tiny(x):
        for _ in range(100):
            x = x * 1.0001
            x = x + 0.5
        return x

    def norm(x, w, b):
        return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))

    yield "chain_f32_8192", lambda x, b: torch.relu(x + b) * 2, (randn(8192, 8192),) * 2
    yield "ln_gelu_bf16_16384x4096", norm, (
        randn(16384, 4096, dtype=half), randn(4096, dtype=half), randn(4096, dtype=half),
    )  # fmt: skip
    yield "softmax_f32_16384x4096", lambda x: torch.softmax(x, -1), (randn(16384, 4096),)
    yield "tiny_200ops_f32_32", tiny, (randn(32),)
    mlp = nn.Sequential(nn.Linear(4096, 16384), nn.GELU(), nn.Linear(16384, 4096))
    yield "mlp_bf16_4096", mlp.to("cuda", half).eval(), (randn(4096, 4096, dtype=half),)
    block = Block(1024, 16).to("cuda", half).eval()
    yield "block_bf16_b8_s1024_d1024", block, (randn(8, 1024, 1024, dtype=half),)
    gpt = GPT().to("cuda", half).eval()
    for b, s in ((8, 1024), (1, 128)):
        yield f"gpt2_bf16_b{b}_s{s}", gpt, (torch.randint(0, 50257, (b, s), device="cuda"),)


def timed(torch, f, times=30):
    """Median milliseconds on the device between two events."""
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        f()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end))
    return round(statistics.median(taken), 4)


def first(torch, f):
    began = time.perf_counter()
    f()
    torch.cuda.synchronize()
    return round(time.perf_counter() - began, 3)


def guarded(log, facts, measure):
    """One measurement; what goes wrong is a line too, and the run goes on."""
    try:
        log(**facts, **measure())
    except Exception as error:
        log(**facts, failed=f"{type(error).__name__}: {str(error)[:300]}")


# ---- parts


def cost(log, torch, name):
    x = torch.ones(32, device="cuda")

    def host(f, times=2000):
        for _ in range(20):
            f()
        best = float("inf")
        for _ in range(5):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(times // 5):
                f()
            best = min(best, (time.perf_counter() - began) / (times // 5))
        return {"us": round(1e6 * best, 2)}

    w = torch.ones(32, requires_grad=True, device="cuda")
    a, b = torch.ones(64, 64, device="cuda"), torch.ones(64, device="cuda")
    linear = torch.nn.functional.linear
    for what, f in {
        "add": lambda: x + x,
        "add_number": lambda: x + 1.0,
        "relu": lambda: torch.relu(x),
        "sum": lambda: x.sum(),
        "softmax": lambda: torch.softmax(x, 0),
        "add_recorded": lambda: w + x,
        "view": lambda: x.view(4, 8),
        "linear": lambda: linear(a, a, b),
        "empty": lambda: torch.empty(32, device="cuda"),
        "item": lambda: x[0].item(),
    }.items():
        guarded(log, {"what": "cost", "of": name, "case": what}, lambda f=f: host(f))
    compiled = torch.compile(lambda v: torch.relu(v + v) * 2)

    def compiled_call():
        with torch.no_grad():
            return host(lambda: compiled(x))

    guarded(log, {"what": "cost", "of": name, "case": "compiled_call"}, compiled_call)


def bandwidth(log, torch, name):
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    here = torch.empty(1 << 28, dtype=torch.uint8)
    pinned = here.pin_memory()
    part = x[: 1 << 28]
    for what, size, f in (
        ("on_device", 2 << 30, lambda: y.copy_(x)),
        ("to_device", 1 << 28, lambda: part.copy_(here)),
        ("to_device_pinned", 1 << 28, lambda: part.copy_(pinned, non_blocking=True)),
        ("to_host_pinned", 1 << 28, lambda: pinned.copy_(part, non_blocking=True)),
    ):
        guarded(
            log,
            {"what": "bandwidth", "of": name, "case": what},
            lambda f=f, size=size: {"gb_per_s": round(size / timed(torch, f, 10) / 1e6, 1)},
        )


def run_cases(log, torch, name):
    for mode in ("eager", "compile"):
        for case, f, args in cases(torch):
            run = f if mode == "eager" else torch.compile(f)

            def measure(run=run, args=args):
                with torch.no_grad():
                    began = first(torch, lambda: run(*args))
                    return {"first_s": began, "ms": timed(torch, lambda: run(*args))}

            guarded(log, {"what": "case", "of": name, "mode": mode, "case": case}, measure)


def training(log, torch, name):
    _, GPT = models(torch)
    F = torch.nn.functional
    ids, to = (torch.randint(0, 50257, (8, 512), device="cuda") for _ in range(2))
    for mode in ("eager", "compile"):
        gpt = GPT(layers=6).to("cuda", torch.bfloat16)
        optimizer = torch.optim.SGD(gpt.parameters(), lr=1e-3)

        def loss(i, t, gpt=gpt):
            return F.cross_entropy(gpt(i).flatten(0, 1).float(), t.flatten())

        run = loss if mode == "eager" else torch.compile(loss)

        def step(run=run, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=True)
            run(ids, to).backward()
            optimizer.step()

        def measure(step=step):
            return {"first_s": first(torch, step), "ms": timed(torch, step, 20)}

        facts = {"what": "training", "of": name, "mode": mode, "case": "gpt2x6_b8_s512"}
        guarded(log, facts, measure)


def prebuild(log, capability):
    """Packs for this card, in build/packs, unless RUSHLIGHT_CUDA_KERNELS names some."""
    if os.environ.get("RUSHLIGHT_CUDA_KERNELS"):
        return
    target, folder = "90" if capability >= (9, 0) else "80", ROOT / "build" / "packs"
    os.environ["RUSHLIGHT_CUDA_KERNELS"] = str(folder)
    pack = folder / f"kernels_sm{target}.pack"
    began = time.perf_counter()
    command = [sys.executable, "-m", "rushlight", "prebuild", "--cuda", target]
    done = subprocess.run(
        [*command, "--out", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    log(
        what="prebuild",
        seconds=round(time.perf_counter() - began, 1),
        mib=round(pack.stat().st_size / 2**20, 1) if pack.exists() else None,
        said=done.stdout.splitlines()[-3:] + done.stderr.splitlines()[-3:],
    )


BOUNDS = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}


def operators(log, rl):
    """Every sample of every operator, and its gradients, here and on the CPU."""
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from tests.ops import materialize as m

    def put(v):
        if isinstance(v, rl.Tensor):
            made = rl.empty_strided(tuple(v.shape), v.stride(), dtype=v.dtype, device="cuda")
            return made.copy_(v)
        return type(v)(map(put, v)) if isinstance(v, (list, tuple)) else v

    def results(op, values, gradients):
        rl.manual_seed(1)
        if not gradients:
            return m.many(m.call(op, values))
        leaf = lambda v: isinstance(v, rl.Tensor) and v.dtype.is_floating_point
        own = [v.detach().clone().requires_grad_() if leaf(v) else v for v in values]
        outs = [o for o in m.many(m.call(op, own)) if isinstance(o, rl.Tensor)]
        outs = [o for o in outs if o.requires_grad]
        if outs:
            sum(o.float().sum() * (i + 1) for i, o in enumerate(outs)).backward()
        return [v.grad for v in own if leaf(v)]

    def difference(got, want):
        if not isinstance(want, rl.Tensor):
            return "" if got is want or got == want else f"{got} for {want}"
        if got.dtype is not want.dtype or got.shape != want.shape:
            return f"{got.dtype} {tuple(got.shape)} for {want.dtype} {tuple(want.shape)}"
        a, b = m.numpy(got.detach().cpu()), m.numpy(want.detach())
        bound = BOUNDS.get(want.dtype.name, 0.0)
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0) if bound else 0.0
        if np.allclose(a, b, rtol=bound, atol=bound * scale, equal_nan=True):
            return ""
        return f"differs by {np.nanmax(np.abs(a.astype('float64') - b.astype('float64'))):.3g}"

    failed, count, began = {}, 0, time.perf_counter()
    for op, sample in m.CASES:
        if op.name in ("empty", "empty_like", "new_empty"):
            continue
        values = m.arguments(op, sample, m.ours)
        for gradients in (False, True) if op.rule is not None else (False,):
            name = m.name((op, sample)) + (" gradient" if gradients else "")
            try:
                want = results(op, values, gradients)
            except (RuntimeError, NotImplementedError):
                continue  # not on the CPU either
            count += 1
            try:
                got = results(op, [put(v) for v in values], gradients)
                told = [t for t in map(difference, got, want) if t]
                if told:
                    failed[name] = told[0]
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {str(error)[:160]}"
    log(
        what="operators",
        calls=count,
        failed=len(failed),
        seconds=round(time.perf_counter() - began, 1),
        failures=dict(list(failed.items())[:80]),
    )


def tests(log):
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "tests/cuda", "-q", "--maxfail=80"]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = done.stdout.splitlines()
    failed = [r for r in rows if r.startswith(("FAILED", "ERROR"))]
    log(
        what="tests",
        result=rows[-1] if rows else done.stderr[-300:],
        seconds=round(time.perf_counter() - began, 1),
        failed=failed[:60],
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--torch", action="store_true", help="the same with torch, afterwards")
    parser.add_argument("--with", dest="module", default="rushlight", help=argparse.SUPPRESS)
    parser.add_argument("--out", help="JSON lines are added to this file")
    given = parser.parse_args(argv)
    parts, log = given.only.split(","), Log(given.out)
    if given.module == "torch":
        import torch
    else:
        import rushlight as torch
    if not torch.cuda.is_available():
        raise SystemExit("no GPU here")
    describe(log, torch, given.module)
    if given.module != "torch":
        if "prebuild" in parts:
            prebuild(log, torch.cuda.get_device_capability())
        if "operators" in parts:
            operators(log, torch)
        if "tests" in parts:
            tests(log)
    for part, run in (
        ("cost", cost), ("bandwidth", bandwidth), ("cases", run_cases), ("training", training),
    ):  # fmt: skip
        if part in parts:
            run(log, torch, given.module)
    if given.module != "torch":
        log(what="counts", **torch.cuda.counts())
        if given.torch:
            again = [sys.executable, __file__, "--with", "torch", "--only", given.only]
            subprocess.run(again + (["--out", given.out] if given.out else []), check=False)


if __name__ == "__main__":
    main()
