# ruff: noqa: E501
"""Public bug reports of compile stacks, rewritten as small differential cases.

Contract (every entry of CASES and EXTRA is ``(name, build_fn)``):
    fn, args = build_fn(T)          # T: a torch-like namespace (torch itself, or your own)
    T.compile(fn)(*args)  must equal  fn(*args)
Always build twice (once for eager, once for compiled): many cases mutate their inputs.

``build_fn`` returns a ``Built`` - a 2-tuple (fn, args) with three optional extras that make the
check stronger; ``run_case`` below honours them, a plain harness may ignore them:
    .steps    [(setup or None, args), ...]  calls made in order on ONE compiled object
              (stale-guard / recompile / caching bugs need more than one call)
    .post     post(out, args) -> value       run outside the compiled region (backward, iteration)
    .observe  observe() -> value             state the caller can see after all calls
META[name] = dict(ref=..., fault=..., topic=...).  Values are compared by ``same`` (NaN == NaN,
-0.0 != 0.0, dtype and shape included, strides not).
"""

from .comparing import freeze, same


class Built(tuple):
    def __new__(cls, fn, args, steps=None, post=None, observe=None):
        self = super().__new__(cls, (fn, tuple(args)))
        self.steps, self.post, self.observe = steps, post, observe
        return self


CASES, EXTRA, META = [], [], {}


def _case(bucket, ref, topic, fault, tol=1e-5):
    def deco(f):
        bucket.append((f.__name__, f))
        META[f.__name__] = dict(ref=ref, topic=topic, fault=fault, tol=tol)
        return f

    return deco


def main40(ref, topic, fault, tol=1e-5):
    return _case(CASES, ref, topic, fault, tol)


def extra(ref, topic, fault, tol=1e-5):
    return _case(EXTRA, ref, topic, fault, tol)


def run_case(build, T, compiler=None):
    """Result of one case; compiler(fn) -> callable, None runs fn as it is (eager)."""
    built = build(T)
    fn, args = built
    f = compiler(fn) if compiler else fn
    out = []
    for setup, a in built.steps or [(None, args)]:
        if setup:
            setup()
        try:
            r = f(*a)
            if built.post:
                r = built.post(r, a)
            out.append(freeze(r))
        except Exception as e:  # the kind of error is part of the answer
            out.append({"raised": type(e).__name__})
    if built.observe:
        out.append({"after": freeze(built.observe())})
    return out


def check(T, compiler=None, cases=None):
    """[(name, ok, eager, compiled)] for a namespace T."""
    compiler = compiler or T.compile
    rows = []
    for name, build in cases or CASES:
        e = run_case(build, T)
        c = run_case(build, T, compiler)
        rows.append((name, same(e, c, META[name]["tol"]), e, c))
    return rows
