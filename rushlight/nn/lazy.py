"""Modules that learn the size of their input from the first one they see: LazyLinear, LazyConv2d
and their like.

Invariant: until then their parameters are UninitializedParameters, which a checkpoint can also
give a shape; at the first call the module initialises them, drops its hooks and becomes an
instance of its plain class (``cls_to_become``).
"""

import itertools
from typing import Any

from rushlight import eager
from rushlight.nn import batchnorm, conv
from rushlight.nn.linear import Linear
from rushlight.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """In front of a module class: ``initialize_parameters(*args)``, defined by the class, is called
    with the arguments of the first call.

    RuntimeError if a parameter has no shape behind it.
    """

    cls_to_become: Any = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self.register_load_state_dict_pre_hook(_shaped_by_state)
        self._initialize_hook = self.register_forward_pre_hook(_initialized, with_kwargs=True)

    def _own_tensors(self):
        tables = itertools.chain(self._parameters.items(), self._buffers.items())
        return [(name, tensor) for name, tensor in tables if tensor is not None]

    def has_uninitialized_params(self):
        """Whether a parameter or buffer of the module itself has no shape yet."""
        return any(is_lazy(tensor) for _, tensor in self._own_tensors())

    def initialize_parameters(self, *args, **kwargs):
        """Gives every parameter a shape, by what forward is called with."""
        raise NotImplementedError(f"[{type(self).__name__}] does not define initialize_parameters")

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, tensor in self._own_tensors():
            if name in self._non_persistent_buffers_set:
                continue
            plain = keep_vars or is_lazy(tensor)
            destination[prefix + name] = tensor if plain else tensor.detach()

    def reset_parameters(self):
        """Initial values, once there is something to give them to."""
        if not self.has_uninitialized_params() and self._input_size():
            super().reset_parameters()

    def _input_size(self):
        raise NotImplementedError


def _shaped_by_state(
    module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
):
    """Before a checkpoint is loaded: shapes are those of its tensors."""
    for name, tensor in module._own_tensors():
        given = state_dict.get(prefix + name)
        if is_lazy(tensor) and given is not None and not is_lazy(given):
            with eager.no_grad():
                tensor.materialize(given.shape)


def _initialized(module, args, kwargs):
    """Before the first call."""
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become
        module._changed()


def _shaped(module, **shapes):
    """Gives shapes to those of the named parameters and buffers that are there."""
    for name, shape in shapes.items():
        tensor = getattr(module, name)
        if tensor is not None:
            tensor.materialize(shape)


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose in_features are the last size of its first input."""

    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _input_size(self):
        return self.in_features

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            with eager.no_grad():
                self.in_features = input.shape[-1]
                out = self.out_features
                _shaped(self, weight=(out, self.in_features), bias=(out,))
                self.reset_parameters()
        if self.in_features == 0:  # a checkpoint gave the shapes
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"[LazyLinear] the input has {input.shape[-1]} features, the weight "
                    f"{self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


class _LazyConv(LazyModuleMixin):
    def __init__(self, out_channels, kernel_size, *, groups, bias, device, dtype, **options):
        super().__init__(0, 0, kernel_size, groups=groups, bias=False, **options)
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _input_size(self):
        return self.in_channels

    def initialize_parameters(self, input, *args, **kwargs):
        if not self.has_uninitialized_params():
            return
        dims = self._dims
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"[{type(self).__name__}] takes {dims + 1} dims, or {dims + 2} in a batch, got "
                f"{input.shape}"
            )
        self.in_channels = input.shape[-dims - 1]
        if self.in_channels % self.groups:
            raise ValueError("[conv] the in_channels must be divisible by groups")
        ends = (self.out_channels, self.in_channels // self.groups)
        if self.transposed:
            ends = (self.in_channels, self.out_channels // self.groups)
        with eager.no_grad():
            _shaped(self, weight=(*ends, *self.kernel_size), bias=(self.out_channels,))
            self.reset_parameters()


def _lazy_conv(plain):
    """The lazy class of a convolution."""

    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        options = {"stride": stride, "padding": padding, "padding_mode": padding_mode}
        there = {"device": device, "dtype": dtype}
        _LazyConv.__init__(
            self, out_channels, kernel_size, groups=groups, bias=bias, dilation=dilation,
            **options, **there,
        )  # fmt: skip

    return _lazy_class(plain, (_LazyConv, plain), __init__, "in_channels are those")


def _lazy_transposed(plain):
    """The lazy class of a transposed convolution, whose arguments stand in another order."""

    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        options = {"stride": stride, "padding": padding, "padding_mode": padding_mode}
        there = {"device": device, "dtype": dtype}
        _LazyConv.__init__(
            self, out_channels, kernel_size, groups=groups, bias=bias, dilation=dilation,
            output_padding=output_padding, **options, **there,
        )  # fmt: skip

    return _lazy_class(plain, (_LazyConv, plain), __init__, "in_channels are those")


def _lazy_class(plain, bases, init, what):
    name = f"Lazy{plain.__name__}"
    doc = f"{plain.__name__} whose {what} of its first input."
    init.__qualname__ = f"{name}.__init__"
    fields = {"__init__": init, "__doc__": doc, "__module__": __name__, "cls_to_become": plain}
    return type(name, bases, fields)


class _LazyNorm(LazyModuleMixin):
    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(0, eps, momentum, False, False, bias=bias)
        self.affine, self.track_running_stats = affine, track_running_stats
        there = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**there)
            if bias:
                self.bias = UninitializedParameter(**there)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**there)
            self.running_var = UninitializedBuffer(**there)
            self.num_batches_tracked = eager.tensor(0, dtype=eager.int64)

    def _input_size(self):
        return self.num_features

    def initialize_parameters(self, input):
        if not self.has_uninitialized_params():
            return
        self.num_features = n = input.shape[1]
        with eager.no_grad():
            _shaped(self, weight=(n,), bias=(n,), running_mean=(n,), running_var=(n,))
            self.reset_parameters()


def _lazy_norm(plain):
    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        options = (eps, momentum, affine, track_running_stats, device, dtype)
        _LazyNorm.__init__(self, *options, bias=bias)

    return _lazy_class(plain, (_LazyNorm, plain), __init__, "num_features are the second size")


LazyConv1d, LazyConv2d, LazyConv3d = map(_lazy_conv, (conv.Conv1d, conv.Conv2d, conv.Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = map(
    _lazy_transposed, (conv.ConvTranspose1d, conv.ConvTranspose2d, conv.ConvTranspose3d)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = map(
    _lazy_norm, (batchnorm.BatchNorm1d, batchnorm.BatchNorm2d, batchnorm.BatchNorm3d)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = map(
    _lazy_norm, (batchnorm.InstanceNorm1d, batchnorm.InstanceNorm2d, batchnorm.InstanceNorm3d)
)
