"""Derivatives that programs write themselves: autograd.Function, as the oracle has it."""

import gc
import weakref

import pytest

import rushlight as rl

from .both import both_do, close, raises


def functions(lib):
    F = lib.autograd.Function

    class Two(F):
        @staticmethod
        def forward(ctx, x, scale, y):
            ctx.save_for_backward(x, y)
            ctx.scale = scale
            return x * y * scale, x + y

        @staticmethod
        def backward(ctx, a, b):
            x, y = ctx.saved_tensors
            return a * y * ctx.scale + b, None, a * x * ctx.scale + b

    class Dirty(F):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Index(F):
        @staticmethod
        def forward(ctx, x):
            top = x.argmax()
            ctx.mark_non_differentiable(top)
            flag = x * 0
            ctx.mark_non_differentiable(top, flag)
            return x.exp(), top, flag

        @staticmethod
        def backward(ctx, g, *rest):
            return g * 7

    class Same(F):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    class Raw(F):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            assert b is None
            return a * 3

    class Setup(F):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    class Cube(F):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * x * 3

    return {c.__name__: c for c in (Two, Dirty, Index, Same, Raw, Setup, Cube)}


def test_custom_functions(oracle):
    def run(lib):
        f = functions(lib)
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = lib.tensor([2.0, -1.0, 0.5], requires_grad=True)
        a, b = f["Two"].apply(x, 3.0, y)
        assert "TwoBackward" in str(a.grad_fn)
        out = (a * b).sum() + (a * 1).sum()
        d = x * 1
        e = f["Dirty"].apply(d)
        assert e is d and e._version > 0 and e.requires_grad
        out = out + (e * y).sum()
        p, top, flag = f["Index"].apply(x)
        assert not top.requires_grad and not flag.requires_grad and top.dtype == lib.int64
        out = out + p.sum() + (flag * x).sum()
        s = f["Same"].apply(y)
        assert s is not y and s.data_ptr() == y.data_ptr()
        out = out + s.sum() + f["Raw"].apply(x)[0].sum() + f["Setup"].apply(x, 4).sum()
        out.backward()
        return lib.stack([x.grad, y.grad])

    both_do(run, (rl,), (oracle,), close)


def test_custom_function_double_backward(oracle):
    def run(lib):
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        y = functions(lib)["Cube"].apply(x)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (h,) = lib.autograd.grad(g.sum(), x)
        return h

    both_do(run, (rl,), (oracle,))


def test_custom_function_errors(oracle):
    for lib in (rl, oracle):
        F = lib.autograd.Function

        class Few(F):
            @staticmethod
            def forward(ctx, x, y):
                return x * y

            @staticmethod
            def backward(ctx, g):
                return g

        class Shape(Few):
            @staticmethod
            def backward(ctx, g):
                return lib.ones(7), None

        class Kind(Few):
            @staticmethod
            def backward(ctx, g):
                return "no", None

        class Fails(Few):
            @staticmethod
            def backward(ctx, g):
                raise KeyError("mine")

        class Nothing(F):
            pass

        x, y = (lib.ones(3, requires_grad=True) for _ in range(2))
        with raises(RuntimeError, match="incorrect number of gradients"):
            Few.apply(x, y).sum().backward()
        with pytest.raises(RuntimeError):
            Shape.apply(x, y).sum().backward()
        with pytest.raises((TypeError, RuntimeError)):
            Kind.apply(x, y).sum().backward()
        with raises(KeyError, match="mine"):
            Fails.apply(x, y).sum().backward()
        with pytest.raises(NotImplementedError):
            Nothing.apply(x)
        assert x.grad is None
        # a saved tensor that was modified
        a = x * 1
        c = functions(lib)["Cube"].apply(a)
        a.add_(1)
        with raises(RuntimeError, match="modified by an inplace operation"):
            c.sum().backward()
        # backward twice frees what was saved
        c = functions(lib)["Cube"].apply(x)
        c.sum().backward()
        with raises(RuntimeError, match="second time"):
            c.sum().backward()
        # no gradients wanted: no node
        with lib.no_grad():
            assert functions(lib)["Cube"].apply(x).grad_fn is None
        assert functions(lib)["Cube"].apply(lib.ones(2)).grad_fn is None


def test_custom_function_frees_its_context():
    f = functions(rl)["Cube"]
    x = rl.ones(3, requires_grad=True)
    kept = []

    class Watched(f):
        @staticmethod
        def forward(ctx, x):
            kept.append(weakref.ref(ctx))
            return f.forward(ctx, x)

    y = Watched.apply(x * 1)
    y.sum().backward()
    del y
    gc.collect()
    assert kept[0]() is None


def test_once_differentiable(oracle):
    for lib in (rl, oracle):

        class Exp(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.exp()

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx, g):
                return g * ctx.saved_tensors[0].exp()

        x = lib.ones(3, requires_grad=True)
        Exp.apply(x).sum().backward()
        assert lib.allclose(x.grad, x.exp())
        (g,) = lib.autograd.grad((Exp.apply(x) ** 2).sum(), x, create_graph=True)
        with raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()
