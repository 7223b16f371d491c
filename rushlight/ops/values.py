"""The kinds of value that pass through an operator call, and the bottom forms that end the recursion of definitions.

A call goes to the highest kind among its arguments: Tensor < Fake < Symbol (a recorded call) < Expr (a loop value).
Tensors are native and never reach this file; `rushlight/eager` plans their calls by passing Symbols through it.
"""
from math import prod

from .layouts import positive

TABLE = {}                          # every declared operator by its public name; filled by declare
METHODS = {}                        # what eager mode's tensors offer besides operators: functions of self


class Value:
    """What may be passed to an operator. Subclasses say what a call (`call`) and a bottom form (`form`) mean for them."""
    __slots__ = ()
    __rushlight_value__ = True
    priority = 0
    tier = None                     # promotion tier; None: by rank

    @classmethod
    def form(cls, kind, op, args):
        """A bottom form: for all but loop values the operator itself."""
        return cls.call(op, op.bind(args))

    def __getattr__(self, name):
        op = TABLE.get(name)
        if op is None or not op.method or name.startswith("__"):
            found = None if name.startswith("__") else METHODS.get(name)
            if isinstance(found, property):
                return found.fget(self)
            if found is not None:
                return lambda *args, **kwargs: found(self, *args, **kwargs)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda *args, **kwargs: op(self, *args, **kwargs)

    def __bool__(self):
        raise TypeError("a value cannot be branched on in a definition or a traced function: its elements are not known yet. "
                        "Use where(condition, a, b); `if` may look at structural arguments and shapes only")

    def number(self, n, dtype):
        """A number that stands beside this value, where no operand says of what dtype it is."""
        return n

    def to(self, dtype):
        dtype = getattr(dtype, "name", dtype)
        return self if self.dtype == dtype else TABLE["to"](self, dtype=dtype)


def binary(name, swap=False):
    def method(self, other):
        op = TABLE[name]
        return op(other, self) if swap else op(self, other)
    return method


for slot, name in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("matmul", "matmul"), ("pow", "pow")):
    setattr(Value, f"__{slot}__", binary(name))
    setattr(Value, f"__r{slot}__", binary(name, swap=True))
for slot in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Value, f"__{slot}__", binary(slot))
Value.__hash__ = object.__hash__
setattr(Value, "__abs__", lambda self: TABLE["abs"](self))  # noqa: B010  as the slots above
Value.__pos__ = lambda self: TABLE["positive"](self)
Value.__neg__ = lambda self: TABLE["neg"](self)


class Array(Value):
    """A value with a layout: fakes and symbols."""
    __slots__ = ("layout",)

    def __init__(self, layout):
        self.layout = layout

    @property
    def shape(self):
        return self.layout.shape

    @property
    def dtype(self):
        return self.layout.dtype

    @property
    def rank(self):
        return self.layout.rank

    ndim = rank

    @property
    def device(self):
        return self.layout.device

    def dim(self):
        return self.rank

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        return prod(self.shape)

    def extent(self, dims):
        """The number of elements of a row over dims."""
        return prod(self.shape[d] for d in positive(dims, self.rank))

    def kept(self, like, dims, keepdim):
        """A cotangent of a reduction over dims: one number a row, the reduced dims as 1."""
        g = self
        for d in () if keepdim else positive(dims, like.rank):
            g = TABLE["unsqueeze"](g, d)
        return g

    def spread(self, like, dims, keepdim):
        """The same, over the shape of what was reduced."""
        return TABLE["expand"](self.kept(like, dims, keepdim), like.shape)

    def filled(self, number):
        """A number, as a value of this shape and dtype."""
        return TABLE["fill"](self, number)

    def viewed(self, shape):
        return TABLE["reshape"](self, tuple(shape))

    def sum_to(self, like):
        """The transpose of broadcasting."""
        lead = self.rank - like.rank
        dims = [*range(lead), *(d + lead for d, n in enumerate(like.shape) if n == 1 and not self.shape[d + lead] == 1)]
        g = TABLE["sum"](self, tuple(dims), True) if dims else self
        return g.viewed(like.shape) if lead else g


class Fake(Array):
    """A layout without data: a call answers with the layout rule. Fakes never enter a tape."""
    __slots__ = ()
    priority = 1

    @classmethod
    def call(cls, op, a):
        outs = tuple(map(cls, op.infer(a)))
        return outs if len(outs) > 1 else outs[0]

    def __repr__(self):
        return f"Fake({self.layout})"


class Form:
    """`word.exp(x)` is an expression for loop values and the operator `exp` itself for every other kind."""

    def __init__(self, kind):
        self.kind = kind

    def __getattr__(self, name):
        def call(*args):
            if name not in TABLE:
                raise NameError(f"[{self.kind}.{name}] no operator {name!r} is declared: {self.kind}.{name}(...) stands in the "
                                f"body of the operator {name} alone. Declare that first, then call {name}(...)")
            kind = max((type(v) for v in args if isinstance(v, Value)), key=lambda k: k.priority)
            return kind.form(self.kind, TABLE[name], args)
        return call


word, fold, take, put, leaf = map(Form, ("word", "fold", "take", "put", "leaf"))
