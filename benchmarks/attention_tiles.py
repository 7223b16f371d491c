"""Attention alone on a GPU: milliseconds and TFLOP/s beside torch's, and those of other tiles.

    python -m benchmarks.attention_tiles [--torch] [--check] [--tiles] [--case b,h,s,d[,causal]] ...

--check compares outputs and gradients with torch's, and ends with 1 where they are off; --tiles
times the candidates below, which are compiled first; without it the table's tiles are timed. Each
line is JSON.
"""

import argparse
import json
import subprocess
import sys

from benchmarks.device import timed

CASES = (
    "8,16,1024,64,causal",
    "8,16,1024,64",
    "8,12,1024,64,causal",
    "4,16,4096,64,causal",
    "8,8,1024,128,causal",
    "4,16,2048,128",
)
# rows held, rows a step, warps, steps in flight
CANDIDATES = {
    "forward": (
        (128, 64, 4, 3),
        (128, 64, 4, 2),
        (128, 64, 8, 3),
        (128, 128, 8, 2),
        (128, 128, 8, 3),
        (64, 64, 4, 3),
        (128, 32, 4, 3),
        (64, 128, 4, 2),
    ),
    "keys": (
        (128, 64, 8, 2),
        (128, 32, 8, 2),
        (64, 64, 4, 2),
        (128, 64, 8, 3),
        (64, 128, 4, 2),
        (64, 32, 4, 3),
        (128, 32, 4, 2),
        (64, 64, 8, 2),
    ),
    "queries": (
        (128, 64, 8, 2),
        (128, 64, 4, 2),
        (64, 64, 4, 2),
        (128, 64, 8, 3),
        (128, 32, 4, 3),
        (64, 64, 4, 3),
        (128, 128, 8, 2),
        (64, 32, 4, 3),
    ),
}


def told(**facts):
    print(json.dumps(facts), flush=True)


def parsed(case):
    b, h, s, d, *mode = case.split(",")
    return int(b), int(h), int(s), int(d), mode == ["causal"]


def heads(torch, b, h, s, d, apart=0):
    """Queries, keys and values as a model's projection leaves them; `apart` rows lie between two
    batches, for layouts that no plan was made for."""
    x = torch.randn(b, s + apart, 3 * h * d, device="cuda", dtype=torch.bfloat16)[:, :s]
    return [t.view(b, s, h, d).transpose(1, 2) for t in x.chunk(3, -1)]


def work(b, h, s, d, causal, ms, products):
    """TFLOP/s of that many products of whole blocks."""
    return round(products * 2 * b * h * s * s * d / (2 if causal else 1) / ms / 1e9, 1)


def both(torch, name, case):
    b, h, s, d, causal = parsed(case)
    q, k, v = heads(torch, b, h, s, d)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        ms = timed(torch, lambda: attend(q, k, v, is_causal=causal))
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves, is_causal=causal)
    g = torch.randn_like(out)
    back = timed(torch, lambda: torch.autograd.grad(out, leaves, g, retain_graph=True))
    told(
        what="attention",
        of=name,
        case=case,
        forward_ms=ms,
        backward_ms=back,
        forward_tflops=work(b, h, s, d, causal, ms, 2),
        backward_tflops=work(b, h, s, d, causal, back, 5),
    )


def tiles(case):
    import rushlight as rl
    from rushlight import _core
    from rushlight.loops import triton_attention as attention
    from rushlight.ops import TABLE
    from rushlight.runtime import triton
    from rushlight.runtime.cuda import kernels

    b, h, s, d, causal = parsed(case)
    major, minor = rl.cuda.get_device_capability()
    capability = 10 * major + minor
    forward, backward = (TABLE[n].native for n in (attention.FORWARD, attention.BACKWARD))
    wanted = []
    for phase, candidates in CANDIDATES.items():
        name = attention.FORWARD if phase == "forward" else attention.BACKWARD
        key = attention.key_of(name, "bfloat16", d, d, "causal" if causal else "")
        for tile in candidates:
            record, sources = attention.record(key, capability, {phase: attention.Tile(*tile)})
            wanted.append((phase, tile, key, record, sources))
    for i, (phase, tile, key, record, sources) in enumerate(wanted, 1):
        facts = {"what": "tile", "phase": phase, "tile": tile, "case": case}
        try:
            made = _core.DeviceKernel(*triton.build(record, sources, capability))
            kernels.kernels[key, capability] = made
            q, k, v = heads(rl, b, h, s, d, 16 * i)
            with rl.no_grad():
                if phase == "forward":
                    ms = timed(rl, lambda: forward(q, k, v, None, causal, d**-0.5))
                else:
                    kernels.kernels.pop((key.replace("_backward", ""), capability), None)
                    out, logs = forward(q, k, v, None, causal, d**-0.5)
                    g = rl.randn_like(out)
                    ms = timed(rl, lambda: backward(g, q, k, v, None, out, logs, causal, d**-0.5))
            place = {"forward": 0, "keys": 1, "queries": 2}[phase]
            used = made.facts(rl.cuda.current_device())[place]
            told(
                **facts,
                ms=ms,
                tflops=work(b, h, s, d, causal, ms, 2 if phase == "forward" else 5),
                registers=used["registers"],
                spilled=used["local_bytes"],
                shared=used["shared"],
            )
        except Exception as error:
            told(**facts, failed=f"{type(error).__name__}: {str(error)[:200]}")


def check():
    """Whether outputs and gradients are torch's in float32, of the same numbers."""
    import numpy as np
    import torch

    import rushlight as rl

    rng, good = np.random.default_rng(0), True
    for dtype in ("bfloat16", "float16"):
        for (b, h, g, s, t, d), causal, masked in (
            ((2, 4, 4, 512, 512, 64), False, None),
            ((2, 4, 4, 512, 512, 64), True, None),
            ((2, 4, 2, 333, 1000, 64), False, None),
            ((1, 3, 3, 777, 777, 80), True, None),
            ((2, 2, 2, 256, 384, 128), False, "float"),
            ((2, 2, 1, 100, 384, 128), False, "bool"),
            ((1, 2, 2, 300, 300, 256), True, None),
            ((2, 4, 4, 500, 500, 32), True, None),
            ((2, 4, 4, 500, 500, 16), False, "bool"),
        ):
            arrays = [
                rng.standard_normal(n).astype("float32")
                for n in ((b, h, s, d), (b, g, t, d), (b, g, t, d), (b, h, s, d))
            ]
            mask = {
                None: None,
                "bool": rng.random((s, t)) > 0.3,
                "float": rng.standard_normal((b, 1, s, t)).astype("float32"),
            }[masked]
            found = {}
            for name, module, kind in (("rushlight", rl, dtype), ("torch", torch, "float32")):
                place = lambda x: module.from_numpy(x).to("cuda")
                low = [
                    place(x).to(getattr(module, dtype)).to(getattr(module, kind)) for x in arrays
                ]
                q, k, v = (x.detach().requires_grad_() for x in low[:3])
                given = None if mask is None else place(mask)
                if masked == "float":
                    given = given.to(getattr(module, kind))
                out = module.nn.functional.scaled_dot_product_attention(
                    q, k, v, given, is_causal=causal, enable_gqa=h != g
                )
                grads = module.autograd.grad(out, (q, k, v), low[3])
                found[name] = [x.detach().float().cpu().numpy() for x in (out, *grads)]
            off = [float(np.abs(x - y).max() / np.abs(y).max()) for x, y in zip(*found.values())]
            near = max(off) < (2e-2 if dtype == "bfloat16" else 3e-3)
            good = good and near
            told(
                what="check",
                dtype=dtype,
                sizes=(b, h, g, s, t, d),
                causal=causal,
                masked=masked,
                off=[round(x, 5) for x in off],
                good=near,
            )
    told(what="counts", **rl.cuda.counts())
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--case", action="append")
    parser.add_argument("--with", dest="module", default="rushlight", help=argparse.SUPPRESS)
    given = parser.parse_args()
    cases = given.case or CASES
    if given.check and not check():
        sys.exit(1)
    if given.tiles:
        for case in cases:
            tiles(case)
        return
    if given.module == "torch":
        import torch
    else:
        import rushlight as torch
    for case in cases:
        both(torch, given.module, case)
    if given.torch:
        again = [a for a in sys.argv[1:] if a not in ("--torch", "--check")]
        command = [sys.executable, "-m", "benchmarks.attention_tiles", *again, "--with", "torch"]
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
