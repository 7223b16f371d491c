"""The templates of attention in Triton's interpreter, compared with the definition in float64.

A process of its own, as triton_interpreted.py: prints one JSON line a case.
"""

import json
import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

import numpy as np  # noqa: E402
import triton_interpreted as interpreted  # noqa: E402  (before Triton: it sets up the interpreter)

from rushlight.loops import triton_attention as attention  # noqa: E402

CASES = {  # (batch, heads, heads of key and value, rows, rows of key, head size, of value), mode
    "even": ((1, 2, 2, 128, 128, 16, 16), ""),
    "odd lengths": ((2, 1, 1, 75, 139, 16, 16), ""),
    "causal": ((1, 1, 1, 200, 200, 16, 16), "causal"),
    "causal, fewer keys": ((1, 1, 1, 150, 70, 16, 16), "causal"),
    "causal, more keys": ((1, 2, 1, 70, 150, 16, 16), "causal"),
    "bias": ((2, 2, 1, 75, 144, 16, 16), "bias"),
    "shared heads": ((1, 6, 2, 40, 75, 16, 16), ""),
    "odd heads": ((1, 2, 1, 75, 70, 20, 12), "causal"),
    "odd heads, bias": ((1, 2, 2, 35, 45, 12, 12), "bias"),
}


def definition(q, k, v, bias, go, causal, scale):
    """(out, lse, dq, dk, dv) in float64."""
    share = q.shape[1] // k.shape[1]
    wide = lambda x: np.repeat(x, share, 1)
    s = scale * q @ wide(k).swapaxes(-1, -2) + (0 if bias is None else bias)
    if causal:
        s = np.where(np.arange(s.shape[-2])[:, None] >= np.arange(s.shape[-1]), s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    out = p @ wide(v)
    lse = np.where(total == 0, np.inf, top + np.log(np.where(total == 0, 1, total)))[..., 0]
    dp = go @ wide(v).swapaxes(-1, -2)
    ds = p * (dp - (go * out).sum(-1, keepdims=True))
    folded = lambda x: x.reshape(x.shape[0], -1, share, *x.shape[2:]).sum(2)
    dq, dk = scale * ds @ wide(k), folded(scale * ds.swapaxes(-1, -2) @ q)
    return out, lse, dq, dk, folded(p.swapaxes(-1, -2) @ go)


class Case:
    def __init__(self, name):
        (b, h, g, s, t, d, e), self.mode = CASES[name]
        rng = np.random.default_rng(len(name))
        self.memory = interpreted.Memory()
        self.q, self.go = self.made(rng, b, h, s, d), self.made(rng, b, h, s, e)
        self.k, self.v = self.made(rng, b, g, t, d), self.made(rng, b, g, t, e)
        self.bias = self.made(rng, b, h, s, t) if self.mode == "bias" else None
        if self.bias is not None:
            self.bias[rng.random(self.bias.shape) < 0.3] = -np.inf
            self.bias[:, :, 3] = -np.inf  # a row that sees nothing
        self.scale = 1 / math.sqrt(d)
        wide = [
            None if x is None else x.astype(np.float64)
            for x in (self.q, self.k, self.v, self.bias, self.go)
        ]
        self.want = definition(*wide, self.mode == "causal", self.scale)

    def made(self, rng, b, h, s, d):
        """Numbers as a model's heads lie: those of a row beside one another."""
        x = self.memory.make(b * s * h * d, np.float16).reshape(b, s, h, d).swapaxes(1, 2)
        x[...] = rng.standard_normal(x.shape)
        return x

    def like(self, x, dtype=None):
        return self.memory.make(x.size, dtype or np.float16).reshape(x.shape)

    def run(self, name):
        """The outputs, and the variants that ran."""
        key = attention.key_of(name, "float16", self.q.shape[-1], self.v.shape[-1], self.mode)
        record, sources = attention.record(key, 90)
        inputs = [x for x in (self.q, self.k, self.v, self.bias) if x is not None]
        out, lse, dq, dk, dv = self.want
        if name == attention.FORWARD:
            outs = [self.like(out), self.like(lse, np.float32)]
        else:
            given = self.like(out), self.like(lse, np.float32)
            given[0][...], given[1][...] = out, lse
            inputs = [self.go, *inputs, *given]
            outs = [self.like(dq), self.like(dk), self.like(dv)]
        n, p = [], []
        for x in (*inputs, *outs):
            none = [1] * (4 - x.ndim), [0] * (4 - x.ndim)
            n += [*none[0], *x.shape, *none[1], *(stride // x.itemsize for stride in x.strides)]
            p.append(x.ctypes.data)
        ran = []
        for i, variant in enumerate(record["variants"]):
            if all(interpreted.evaluate(w, n, p) for w in variant["when"]):
                ran.append(i)
                for x in outs:
                    x[...] = np.nan
                interpreted.launch(variant, sources, n, p, [self.scale])
                self.check(name, outs)
        return ran

    def check(self, name, outs):
        want = self.want[:2] if name == attention.FORWARD else self.want[2:]
        for x, y in zip(outs, want):
            x = x.astype(np.float64)
            assert (np.isinf(x) == np.isinf(y)).all(), (x, y)
            off = np.abs(np.where(np.isinf(y), 0, x - np.where(np.isinf(y), 0, y)))
            assert np.nanmax(off) < 6e-3 and not np.isnan(x).any(), (name, np.nanmax(off))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        try:
            case = Case(name)
            told = {f: case.run(f) for f in (attention.FORWARD, attention.BACKWARD)}
            print(json.dumps({"case": name, **told}), flush=True)
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}"[:600]
            print(json.dumps({"case": name, "error": text}), flush=True)
