# ruff: noqa: E501  the C++ of a small kernel library stands in here
"""Core without the operator room: a hand-written kernel library, a few operators on it, and the hooks that plan them.

Takes the extension module's file (RUSHLIGHT_CORE, else the installed package's, which is not imported). Gives `core`,
the module, and the operators as functions. One process must not load the package beside it: test_native.py starts one.
"""

import glob
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import types

KERNELS = r"""
#include <cmath>
#include <cstdint>
union Number { double f; int64_t i; };
typedef int64_t (*Kernel)(void* const*, const int64_t*, const Number*);
struct Entry { const char* key; Kernel fn; int32_t outer, inner, inputs, outputs, numbers, serial, cost; const char* origin; };

template <class T, class F> int64_t binary(void* const* p, const int64_t* n, const Number* s, F f) {
  const T *a = (const T*)p[0], *b = (const T*)p[1]; T* o = (T*)p[2];
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++) o[i * n[6] + j * n[7]] = f(a[i * n[2] + j * n[3]], b[i * n[4] + j * n[5]], s);
  return 0;
}
template <class T, class F> int64_t unary(void* const* p, const int64_t* n, const Number* s, F f) {
  const T* a = (const T*)p[0]; T* o = (T*)p[1];
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++) o[i * n[4] + j * n[5]] = f(a[i * n[2] + j * n[3]], s);
  return 0;
}
#define BINARY(name, T, expr) static int64_t name(void* const* p, const int64_t* n, const Number* s) { \
  return binary<T>(p, n, s, [](T a, T b, const Number* s) -> T { (void)s; (void)a; (void)b; return (T)(expr); }); }
#define UNARY(name, T, expr) static int64_t name(void* const* p, const int64_t* n, const Number* s) { \
  return unary<T>(p, n, s, [](T a, const Number* s) -> T { (void)s; return (T)(expr); }); }
BINARY(add_f32, float, a + b) BINARY(adda_f32, float, a + (float)s[0].f * b) BINARY(mul_f32, float, a * b)
BINARY(add_f64, double, a + b) BINARY(mul_f64, double, a * b) BINARY(add_i64, int64_t, a + b)
BINARY(copy_f32, float, b)
UNARY(addn_f32, float, a + (float)s[0].f) UNARY(muln_f32, float, a * (float)s[0].f) UNARY(exp_f32, float, std::exp(a))
UNARY(addn_i64, int64_t, a + s[0].i)

static int64_t sum_f32(void* const* p, const int64_t* n, const Number*) {        // 1 outer, 1 inner
  const float* a = (const float*)p[0]; float* o = (float*)p[1];
  for (int64_t i = 0; i < n[0]; i++) {
    float t = 0;
    for (int64_t j = 0; j < n[1]; j++) t += a[i * n[2] + j * n[3]];
    o[i * n[4]] = t;
  }
  return 0;
}
static int64_t take_f32(void* const* p, const int64_t* n, const Number*) {       // loops (I, D | V)
  const float* w = (const float*)p[0]; const int64_t* ix = (const int64_t*)p[1]; float* o = (float*)p[2];
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t d = 0; d < n[1]; d++) {
      int64_t v = ix[i * n[6] + d * n[7]];
      if (v < 0 || v >= n[2]) return 1 + (v < 0 ? -2 * v - 1 : 2 * v);
      o[i * n[9] + d * n[10]] = w[i * n[3] + d * n[4] + v * n[5]];
    }
  return 0;
}
static int64_t full_f32(void* const* p, const int64_t* n, const Number* s) {
  float* o = (float*)p[0];
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++) o[i * n[2] + j * n[3]] = (float)s[0].f;
  return 0;
}
static int64_t pair_f32(void* const* p, const int64_t* n, const Number*) {       // (x + x, x * x)
  const float* a = (const float*)p[0]; float *o = (float*)p[1], *q = (float*)p[2];
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++) {
      float x = a[i * n[2] + j * n[3]];
      o[i * n[4] + j * n[5]] = x + x;
      q[i * n[6] + j * n[7]] = x * x;
    }
  return 0;
}
extern "C" {
__attribute__((visibility("default"))) extern const Entry rushlight_kernels[] = {
  {"add.f32", add_f32, 2, 0, 2, 1, 0, 0, 1, "harness"}, {"adda.f32", adda_f32, 2, 0, 2, 1, 1, 0, 1, "harness"},
  {"mul.f32", mul_f32, 2, 0, 2, 1, 0, 0, 1, "harness"}, {"add.f64", add_f64, 2, 0, 2, 1, 0, 0, 1, "harness"},
  {"mul.f64", mul_f64, 2, 0, 2, 1, 0, 0, 1, "harness"}, {"add.i64", add_i64, 2, 0, 2, 1, 0, 0, 1, "harness"},
  {"copy.f32", copy_f32, 2, 0, 2, 1, 0, 0, 1, "harness"}, {"addn.f32", addn_f32, 2, 0, 1, 1, 1, 0, 1, "harness"},
  {"muln.f32", muln_f32, 2, 0, 1, 1, 1, 0, 1, "harness"}, {"exp.f32", exp_f32, 2, 0, 1, 1, 0, 0, 20, "harness"},
  {"addn.i64", addn_i64, 2, 0, 1, 1, 1, 0, 1, "harness"}, {"sum.f32", sum_f32, 1, 1, 1, 1, 0, 0, 1, "harness"},
  {"take.f32", take_f32, 2, 1, 2, 1, 0, 0, 1, "harness"}, {"full.f32", full_f32, 2, 0, 0, 1, 1, 0, 1, "harness"},
  {"pair.f32", pair_f32, 2, 0, 1, 2, 0, 0, 1, "harness"},
};
__attribute__((visibility("default"))) extern const int64_t rushlight_kernel_count = sizeof rushlight_kernels / sizeof *rushlight_kernels;
}
"""


def extension():
    """The file of `_core`, without importing the package around it."""
    if os.environ.get("RUSHLIGHT_CORE"):
        return os.environ["RUSHLIGHT_CORE"]
    spec = importlib.util.find_spec("rushlight")
    tag = f"_core*{sys.version_info[0]}{sys.version_info[1]}*.so"
    found = (
        [
            f
            for place in spec.submodule_search_locations
            for f in glob.glob(os.path.join(place, tag))
        ]
        if spec
        else []
    )
    if not found:
        raise ImportError(f"no {tag} in the installed rushlight; set RUSHLIGHT_CORE")
    return found[0]


def load():
    loader = importlib.machinery.ExtensionFileLoader("rushlight._core", extension())
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("rushlight._core", loader)
    )
    loader.exec_module(module)
    sys.modules["rushlight._core"] = module
    parent = sys.modules.setdefault("rushlight", types.ModuleType("rushlight"))  # pickles name it
    parent._core = module
    return module


def kernel_library():
    folder = tempfile.mkdtemp(prefix="core_kernels_")
    source = os.path.join(folder, "kernels.cpp")
    with open(source, "w") as f:
        f.write(KERNELS)
    out = os.path.join(folder, "libkernels_v2.so")
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    subprocess.run(
        [os.environ.get("CXX", "g++"), "-O1", "-shared", "-fPIC", "-o", out, source],
        check=True,
        env=clean,
    )
    return folder


core = load()
os.environ["RUSHLIGHT_ISA"] = "v2"
core.kernels_load(kernel_library())
f32, f64, i64 = core.float32, core.float64, core.int64
SHORT = {f32: "f32", f64: "f64", i64: "i64"}
CALLS = []  # (hook, operator name), in order
R = ...  # marks a required parameter


class Declaration:
    def __init__(self, plan, backward=None):
        self.plan, self.backward = plan, backward


def make_plan(op, values, needs):
    CALLS.append(("plan", op.name))
    return op.declaration.plan(*values)


def make_backward(op, values, outs, needs):
    CALLS.append(("backward", op.name))
    rule = op.declaration.backward
    return rule(values, outs, needs) if rule else None


def dispatch(op, values, out):
    return (
        next(v for v in values if hasattr(type(v), "__rushlight_value__")).seen(op, values, out)
        if any(hasattr(type(v), "__rushlight_value__") for v in values)
        else ("dispatched", op.name, values)
    )


core.set_hooks(make_plan=make_plan, make_backward=make_backward, dispatch=dispatch)


def is_tensor(x):
    return isinstance(x, core.Tensor)


# ---- plans


def elementwise(name, alpha=False):
    def plan(x, y, *rest):
        if not is_tensor(x):  # number first: the other way round
            return core.Program(2 + len(rest), [(OPS[name], (("r", 1), ("r", 0)), 9)], ("r", 9))
        if is_tensor(y) and x.dtype is not y.dtype:
            best = f64 if f64 in (x.dtype, y.dtype) else f32
            return core.Program(
                2 + len(rest),
                [
                    (lambda v: core.tensor(v.detach(), best), (("r", 0),), 9),
                    (lambda v: core.tensor(v.detach(), best), (("r", 1),), 10),
                    (OPS[name], (("r", 9), ("r", 10)), 11),
                ],
                ("r", 11),
            )
        d = SHORT[x.dtype]
        if not is_tensor(y):
            kind = "i" if x.dtype is i64 else "f"
            if x.dtype is i64 and isinstance(y, float):
                return core.Program(
                    2 + len(rest),
                    [
                        (lambda v: core.tensor(v, f32), (("r", 0),), 9),
                        (OPS[name], (("r", 9), ("r", 1)), 10),
                    ],
                    ("r", 10),
                )
            return core.Recipe(f"{name}n.{d}", "broadcast", 0, "F", "S", (x.dtype,), ((1, kind),))
        if alpha and rest and rest[0] != 1:
            return core.Recipe(f"adda.{d}", "broadcast", 0, "FF", "S", (x.dtype,), ((2, "f"),))
        return core.Recipe(f"{name}.{d}", "broadcast", 0, "FF", "S", (x.dtype,))

    return plan


def sum_plan(x, dim, keepdim):
    dims = (
        range(x.dim())
        if dim is None
        else [d % x.dim() for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    )
    return core.Recipe(
        "sum.f32", "rows", sum(1 << d for d in dims), "F", "K" if keepdim else "D", (f32,)
    )


# ---- derivatives: Python functions inside programs, so that core's own part is what is tested


def sum_to(shape):
    def run(g):
        while g.dim() > len(shape):
            g = OPS["sum"](g, (0,), False)
        for d, n in enumerate(shape):
            if n == 1 and g.shape[d] != 1:
                g = OPS["sum"](g, (d,), True)
        return g

    return run


def of(needs, *entries):
    return tuple(e if needs >> i & 1 else ("c", None) for i, e in enumerate(entries))


def add_backward(values, outs, needs):
    x, y, alpha = values
    code = [
        (sum_to(tuple(v.shape)), (("r", 0),), 10 + i) for i, v in enumerate((x, y)) if is_tensor(v)
    ]
    flat = [("r", 10 + i) for i, v in enumerate((x, y)) if is_tensor(v)]
    if is_tensor(y) and alpha != 1:
        code.append((OPS["mul"], (flat[-1], ("c", float(alpha))), 20))
        flat[-1] = ("r", 20)
    return core.Program(1, code, of(needs, *flat)), (), (), (), False


def mul_backward(values, outs, needs):
    x, y = values
    if not is_tensor(y):
        return (
            core.Program(2, [(OPS["mul"], (("r", 0), ("r", 1)), 2)], (("r", 2),)),
            (),
            (),
            (1,),
            False,
        )
    if not is_tensor(x):
        return (
            core.Program(2, [(OPS["mul"], (("r", 0), ("r", 1)), 2)], (("r", 2),)),
            (),
            (),
            (0,),
            False,
        )
    code, saved, outputs = [], [], []
    for i, (mine, other) in enumerate(((x, 1), (y, 0))):
        if needs >> i & 1:
            saved.append(other)
            code += [
                (OPS["mul"], (("r", 0), ("r", len(saved))), 10 + i),
                (sum_to(tuple(mine.shape)), (("r", 10 + i),), 20 + i),
            ]
        outputs.append(("r", 20 + i))
    return core.Program(1 + len(saved), code, of(needs, *outputs)), saved, (), (), False


def exp_backward(values, outs, needs):
    return (
        core.Program(2, [(OPS["mul"], (("r", 0), ("r", 1)), 2)], (("r", 2),)),
        (),
        (0,),
        (),
        False,
    )


def sum_backward(values, outs, needs):
    shape = tuple(values[0].shape)
    kept = tuple(1 if values[1] is None or d in values[1] else n for d, n in enumerate(shape))
    code = [
        (OPS["reshape"], (("r", 0), ("c", kept)), 1),
        (OPS["expand"], (("r", 1), ("c", shape)), 2),
    ]
    return core.Program(1, code, (("r", 2),)), (), (), (), False


def copy_backward(values, outs, needs):
    code = [
        (sum_to(tuple(values[1].shape)), (("r", 0),), 1),
        (OPS["mul"], (("r", 0), ("c", 0.0)), 2),
    ]
    return core.Program(1, code, of(needs, ("r", 2), ("r", 1))), (), (), (), False


def view_backward(name):
    def rule(values, outs, needs):
        shape = tuple(values[0].shape)
        params = [i for i, v in enumerate(values) if i and isinstance(v, int)]

        def run(g, *numbers):
            given = dict(zip(params, numbers))
            z = core.tensor([0.0]).expand(shape)
            z = OPS["add"](z, 0.0)
            OPS["copy"].inplace(
                OPS[name](z, *[given.get(i, v) for i, v in enumerate(values) if i]), g
            )
            return z

        if name == "expand":
            run = sum_to(shape)
            params = []
        return (
            core.Program(
                1 + len(params),
                [(run, tuple(("r", i) for i in range(1 + len(params))), 30)],
                (("r", 30),),
            ),
            (),
            (),
            params,
            False,
        )

    return rule


def pair_backward(values, outs, needs):
    code = [
        (OPS["mul"], (("r", 0), ("c", 2.0)), 10),
        (OPS["mul"], (("r", 1), ("r", 2)), 11),
        (OPS["mul"], (("r", 11), ("c", 2.0)), 12),
        (OPS["add"], (("r", 10), ("r", 12)), 13),
    ]
    return core.Program(3, code, (("r", 13),)), (0,), (), (), False


def matmul_backward(values, outs, needs):
    code = [
        (OPS["transpose"], (("r", 2), ("c", 0), ("c", 1)), 3),
        (OPS["matmul"], (("r", 0), ("r", 3)), 4),
        (OPS["transpose"], (("r", 1), ("c", 0), ("c", 1)), 5),
        (OPS["matmul"], (("r", 5), ("r", 0)), 6),
    ]
    return core.Program(3, code, of(needs, ("r", 4), ("r", 6))), (0, 1), (), (), False


OPS = {}


def define(name, params, plan, backward=None, **more):
    OPS[name] = core.Operator(
        name, params, more.pop("kind", "scalar"), Declaration(plan, backward), **more
    )
    core.set_method(name, OPS[name])
    return OPS[name]


T = lambda name: (name, "tensor", R, False)
define(
    "add",
    (T("self"), T("other"), ("alpha", "number", 1, True)),
    elementwise("add", True),
    add_backward,
)
define("mul", (T("self"), T("other")), elementwise("mul"), mul_backward)
define(
    "exp",
    (T("self"),),
    lambda x: core.Recipe("exp.f32", "broadcast", 0, "F", "S", (f32,)),
    exp_backward,
)
define(
    "sum",
    (T("self"), ("dim", "ints?", None, False), ("keepdim", "bool", False, False)),
    sum_plan,
    sum_backward,
    kind="rows",
)
define(
    "copy",
    (T("self"), T("src"), ("non_blocking", "bool", False, False)),
    lambda x, y, b: core.Recipe("copy.f32", "broadcast", 0, "FF", "S", (f32,)),
    copy_backward,
)
define(
    "full",
    (("size", "symints", R, False), ("value", "number", R, False)),
    lambda size, value: core.Recipe("full.f32", "sized", 0, "", "C", (f32,), ((1, "f"),), 0),
    differentiable=False,
)
define(
    "take",
    (T("self"), T("index")),
    lambda w, i: core.Recipe("take.f32", "table", 0, "FF", "C", (f32,)),
    differentiable=False,
)
define(
    "pair",
    (T("self"),),
    lambda x: core.Recipe("pair.f32", "broadcast", 0, "F", "SS", (f32, f32)),
    pair_backward,
    outputs=2,
)
define("matmul", (T("self"), T("other")), lambda x, y: core.GemmRecipe(0, 1), matmul_backward)
define(
    "square",
    (T("self"),),
    lambda x: core.Program(1, [(OPS["mul"], (("r", 0), ("r", 0)), 1)], ("r", 1), transparent=True),
)
define(
    "twice",
    (T("self"),),
    lambda x: core.Program(1, [(OPS["add"], (("r", 0), ("r", 0)), 1)], ("r", 1)),
    lambda v, o, n: (
        core.Program(1, [(OPS["mul"], (("r", 0), ("c", 2.0)), 1)], (("r", 1),)),
        (),
        (),
        (),
        False,
    ),
)
define(
    "addlist",
    (("tensors", "tensors", R, False),),
    lambda xs: core.Program(1, [(OPS["add"], (("i", 0, 0), ("i", 0, len(xs) - 1)), 1)], ("r", 1)),
)
define(
    "scaled",
    (
        T("self"),
        ("by", "float!", 2.0, False),
        ("how", "str", "up", False),
        ("into", "dtype?", None, True),
    ),
    lambda x, by, how, into: core.Program(
        4, [(OPS["mul"], (("r", 0), ("c", by if how == "up" else 1 / by)), 5)], ("r", 5)
    ),
)
INT = lambda name, default=R: (name, "symint", default, False)
for name, params in {
    "select": (("dim", "int", R, False), INT("index")),
    "slice": (
        ("dim", "int", 0, False),
        ("start", "symint?", None, False),
        ("end", "symint?", None, False),
        INT("step", 1),
    ),
    "permute": (("dims", "ints", R, False),),
    "transpose": (("dim0", "int", R, False), ("dim1", "int", R, False)),
    "reshape": (("shape", "symints", R, False),),
    "view": (("size", "symints", R, False),),
    "expand": (("size", "symints", R, False),),
    "unsqueeze": (("dim", "int", R, False),),
    "squeeze": (("dim", "ints?", None, False),),
    "as_strided": (
        ("size", "symints", R, False),
        ("stride", "symints", R, False),
        ("storage_offset", "symint?", None, False),
    ),
    "alias": (),
}.items():
    define(name, (T("self"),) + params, None, view_backward(name), kind="view", view=name)
for name in ("add", "mul"):
    core.set_slot(name, OPS[name])
    core.set_slot("i" + name, OPS[name].make_inplace())
    core.set_method(name + "_", OPS[name].inplace)
core.set_slot("matmul", OPS["matmul"])
core.set_slot("copy_", OPS["copy"].make_inplace())
core.set_method("copy_", OPS["copy"].inplace)
core.set_method("exp_", OPS["exp"].make_inplace())


def tensor(data, dtype=None, grad=False):
    t = core.tensor(data, dtype)
    return t.requires_grad_() if grad else t
