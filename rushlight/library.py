"""`rushlight.library`: a program's own operators, under PyTorch's names.

`OPERATORS["mylib::scale"]` is an Operator: kernels by kind of device, a fake, and a derivative.
Calling one runs the kernel of the first tensor's device without recording; where a gradient is
required, the registered derivative is its backward, and an operator without one gives results that
backward refuses. Under `rushlight run`, `torch.ops.mylib.scale` is the same object.
"""

import inspect

from rushlight import eager
from rushlight.eager.functions import Function

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "triton_op",
    "wrap_triton",
]

OPERATORS = {}
KINDS = ("cpu", "cuda", "mps", "xpu", "meta")
# Keys of torch's dispatcher, and the kernel each one sets. Recorded: its operators, not one node.
KEYS = {
    **{kind.upper(): kind for kind in KINDS},
    "Meta": "meta",
    "CompositeExplicitAutograd": "default",
    "CompositeImplicitAutograd": "recorded",
    "Autograd": "recorded",
    "": "recorded",
    "Autocast": "autocast",  # kept: a call computes in the types that it is given
    **{f"Autocast{kind.upper()}": "autocast" for kind in KINDS},
}


class Operator:
    """One operator of a program's. `schema` is text, kept as it was given."""

    def __init__(self, name, schema=None, mutates=()):
        self._qualname, self.schema, self.mutates = name, schema, mutates
        self.kernels, self.disabled = {}, set()
        self.fake = self.backward = self.setup_context = self.signature = None
        self.__name__ = name.rpartition("::")[2]

    def __call__(self, *args, **kwargs):
        if self.signature is not None and kwargs:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        kernel, recorded = self.chosen(args, kwargs)
        if recorded:
            return kernel(*args, **kwargs)
        return call(self, kernel, kwargs, args)

    def chosen(self, args, kwargs):
        """The kernel for these arguments, and whether its own operators are recorded."""
        kinds = [x.device.type for x in (*args, *kwargs.values()) if isinstance(x, eager.Tensor)]
        kind = kinds[0] if kinds else "cpu"
        if kind == "meta" and self.fake is not None:
            return self.fake, False
        for name in (kind, "default"):
            if name in self.kernels and name not in self.disabled:
                return self.kernels[name], False
        if "recorded" in self.kernels:
            return self.kernels["recorded"], True
        raise NotImplementedError(
            f"[{self._qualname}] no kernel for {kind}; there are {sorted(self.kernels) or 'none'}"
        )

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return known, (self._qualname,)

    def __getattr__(self, name):
        if name == "default":
            return self
        if name == "_qualname":  # not there yet
            raise AttributeError(name)
        raise AttributeError(f"operator {self._qualname} has no attribute {name!r}")

    def __repr__(self):
        return self._qualname

    # ---- what torch.library.custom_op returns has these as methods

    def register_kernel(self, device_types, fn=None, /):
        """Sets the function for some kinds of device (a name, names, or None for all)."""
        names = ["default"] if device_types is None else device_types
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in (*KINDS, "default"):
                raise ValueError(f"[{self._qualname}] unknown kind of device {name!r}")

        def register(fn):
            self.kernels.update(dict.fromkeys(names, fn))
            return fn

        return register if fn is None else register(fn)

    def register_fake(self, fn, /):
        """Sets the function that gives results of the right shape for tensors without data."""
        self.fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None):
        """Sets the derivative: backward(ctx, *grads), with setup_context(ctx, inputs, output)."""
        self.backward, self.setup_context = backward, setup_context

    def register_vmap(self, func=None, /):
        """Taken and not needed: vmap is a loop here."""
        return (lambda fn: fn) if func is None else func

    def register_torch_dispatch(self, torch_dispatch_class, fn=None, /):
        return (lambda given: given) if fn is None else fn


CustomOpDef = Operator


def call(operator, kernel, kwargs, args):
    """One call as one node of the tape."""

    class Call(Function):
        @staticmethod
        def forward(ctx, *args):
            output = kernel(*args, **kwargs)
            if operator.setup_context is not None:
                more = {"keyword_only_inputs": kwargs} if kwargs else {}
                operator.setup_context(ctx, args, output, **more)
            return output

        @staticmethod
        def backward(ctx, *grads):
            if operator.backward is None:
                raise RuntimeError(
                    f"[{operator._qualname}] no derivative is registered "
                    "(torch.library.register_autograd)"
                )
            return operator.backward(ctx, *grads)

    Call.__name__ = Call.__qualname__ = operator.__name__
    return Call.apply(*args)


def qualified(name):
    if not isinstance(name, str) or name.count("::") != 1:
        raise ValueError(f"[library] expected a name 'namespace::name', got {name!r}")
    return name


def known(op, native=False):
    """The operator of a name, or itself; RuntimeError for a name that nobody defined. `native`: for
    such a name an operator without a kernel, because the library that defines it in C++, against
    torch, does not load here and its Python part does."""
    if isinstance(op, Operator):
        return op
    name = qualified(str(op).removesuffix(".default"))
    if name not in OPERATORS:
        if not native:
            raise RuntimeError(f"[library] operator {op} is not defined")
        OPERATORS[name] = Operator(name)
    return OPERATORS[name]


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Makes a function an operator `namespace::name`, opaque to the compiler and to the tape.

    `mutates_args`: the names of the arguments that it writes to. Without `schema`, parameters need
    annotations. Usable as a decorator. Returns the operator, callable as the function.
    """

    def make(fn):
        text = infer_schema(fn, mutates_args=mutates_args) if schema is None else schema
        operator = OPERATORS[qualified(name)] = Operator(name, text, mutates_args)
        operator.signature = inspect.signature(fn)
        operator.__doc__ = fn.__doc__
        operator.register_kernel(device_types, fn)
        return operator

    return make if fn is None else make(fn)


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """As `custom_op`; its Triton kernels run as they are."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel, /):
    """The kernel, as it is."""
    return triton_kernel


def infer_schema(prototype_function, /, *, mutates_args, op_name=None):
    """The schema of an annotated function as text. ValueError for a parameter without annotation
    or one in `mutates_args` that is none."""
    signature = inspect.signature(prototype_function)
    parameters = []
    for name, parameter in signature.parameters.items():
        if parameter.annotation is inspect.Parameter.empty:
            raise ValueError(f"[infer_schema] parameter {name} must have a type annotation")
        written = mutates_args == "unknown" or name in mutates_args
        kind = _kind(parameter.annotation)
        kind = "Tensor(a!)" if written and kind == "Tensor" else kind
        given = parameter.default is not inspect.Parameter.empty
        parameters.append(f"{kind} {name}{f'={parameter.default}' if given else ''}")
    unknown = () if mutates_args == "unknown" else set(mutates_args) - set(signature.parameters)
    if unknown:
        raise ValueError(f"[infer_schema] mutates_args names {sorted(unknown)}, no parameters")
    result = signature.return_annotation
    result = "()" if result in (None, inspect.Signature.empty) else _kind(result)
    return f"{op_name or ''}({', '.join(parameters)}) -> {result}"


def _kind(annotation):
    names = {eager.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str"}
    if annotation in names:
        return names[annotation]
    text = annotation if isinstance(annotation, str) else str(annotation)
    return text.replace("torch.", "").replace("typing.", "")


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Sets the kernel of a defined operator for some kinds of device."""
    return known(op).register_kernel(device_types, func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """Sets the function for tensors without data; usable as a decorator."""
    operator = known(op, native=True)
    return operator.register_fake if func is None else operator.register_fake(func)


impl_abstract = register_fake  # the name of the past


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Sets the derivative of a defined operator."""
    known(op, native=True).register_autograd(backward, setup_context=setup_context)


def define(qualname, schema, *, lib=None, tags=()):
    """Defines an operator without kernels, by its schema "(Tensor x) -> Tensor"."""
    OPERATORS[qualified(qualname)] = Operator(qualname, schema)


def impl(qualname, types, func=None, *, lib=None):
    """Sets the kernel of a defined operator: types are kinds of device, or "default"."""
    names = [types] if isinstance(types, str) else list(types)
    operator = known(qualname)
    names = [KEYS.get(name, name) for name in names]

    def register(fn):
        operator.kernels.update(dict.fromkeys(names, fn))
        return fn

    return register if func is None else register(func)


def get_kernel(op, dispatch_key):
    """The kernel that was set for a key."""
    return known(op).kernels[KEYS.get(dispatch_key, dispatch_key)]


class Library:
    """Operators of a namespace: `define` their schemas, `impl` their kernels. kind: DEF, FRAGMENT
    or IMPL. ATen's own operators cannot be replaced (NotImplementedError)."""

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"[Library] kind must be DEF, FRAGMENT or IMPL, got {kind!r}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema, alias_analysis="", *, tags=()):
        name, bracket, rest = schema.partition("(")
        if self.kind == "IMPL" or not bracket:
            raise RuntimeError(f"[Library.define] {schema!r} cannot be defined ({self.kind})")
        full = f"{self.ns}::{name.strip()}"
        if full in OPERATORS:
            raise RuntimeError(f"[Library.define] {full} is defined already")
        OPERATORS[full] = Operator(full, bracket + rest)
        return name.strip()

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False):
        if self.ns == "aten":
            raise NotImplementedError(f"[Library.impl] {op_name} of aten cannot be replaced")
        name = getattr(op_name, "_qualname", str(op_name))
        name = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key
        if key not in KEYS:
            raise NotImplementedError(f"[Library.impl] dispatch key {key!r} is not in Rushlight")
        if KEYS[key] == "meta":
            known(name, native=True).register_fake(fn)
        known(name, native=self.kind == "IMPL").kernels[KEYS[key]] = fn
