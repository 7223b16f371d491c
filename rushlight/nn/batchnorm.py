"""Batch, instance and group norm: channels brought to mean 0 and deviation 1, then scaled and
shifted by learned numbers."""

from rushlight import eager
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter


class _NormBase(Module):
    """Parameters weight and bias, buffers running_mean, running_var and num_batches_tracked."""

    _version = 2  # since which num_batches_tracked is saved
    _dims: tuple = ()

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        where = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = Parameter(eager.empty((num_features,), **where)) if wanted else None
            self.register_parameter(name, made)
        tracks = track_running_stats
        for name, filled in (("running_mean", eager.zeros), ("running_var", eager.ones)):
            self.register_buffer(name, filled((num_features,), **where) if tracks else None)
        count = eager.tensor(0, dtype=eager.int64) if tracks else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input):
        if input.dim() not in self._dims:
            wanted = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(
                f"[{type(self).__name__}] takes {wanted} input, got {input.dim()} dims"
            )

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            state_dict[key] = eager.tensor(0, dtype=eager.int64)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    def forward(self, input):
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean over all batches
                factor = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        keeps = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keeps else None,
            self.running_var if keeps else None,
            self.weight,
            self.bias,
            by_batch,
            factor,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """(N, C) or (N, C, L): each channel by the batch's mean and variance while training, by the
    running ones in eval mode.

    momentum: how far the running statistics move towards the batch's; None: they are the mean over
    all batches. ValueError for other dims.
    """

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(N, C, H, W): as BatchNorm1d."""

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """(N, C, D, H, W): as BatchNorm1d."""

    _dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """(N, C, ...): BatchNorm over the batches of all processes of a group. There are no process
    groups here, so there is one process, whose batch norm it is; NotImplementedError where a group
    is given.
    """

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        if process_group is not None:
            raise NotImplementedError(
                "[SyncBatchNorm] process groups are not there yet: one process only"
            )
        options = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *options, bias=bias)
        self.process_group = None

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"[SyncBatchNorm] takes at least 2 dims, got {input.dim()}")
        if input.shape[1] == 0:
            raise ValueError("[SyncBatchNorm] the input has no channels")

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """The module with every batch norm in it as a SyncBatchNorm with its tensors."""
        made = module
        if isinstance(module, _BatchNorm):
            options = (module.eps, module.momentum, module.affine, module.track_running_stats)
            size, bias = module.num_features, module.bias is not None
            made = cls(size, *options, process_group, bias=bias)
            if module.affine:
                made.weight = module.weight
                if bias:
                    made.bias = module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(
            num_features,
            eps,
            momentum,
            affine,
            track_running_stats,
            device,
            dtype,
            bias=bias,
        )

    def forward(self, input):
        self._check_input_dim(input)
        single = input.dim() == self._dims[0]
        x = input.unsqueeze(0) if single else input
        if x.shape[1] != self.num_features and self.affine:
            raise ValueError(
                f"[{type(self).__name__}] {x.shape[1]} channels where "
                f"num_features={self.num_features}"
            )
        out = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """(N, C, L) or (C, L): each channel of each image by its own mean and variance."""

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """(N, C, H, W) or (C, H, W): as InstanceNorm1d."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """(N, C, D, H, W) or (C, D, H, W): as InstanceNorm1d."""

    _dims = (4, 5)


class GroupNorm(Module):
    """(N, C, ...): each image's channels in ``num_groups`` groups, each by its own mean and
    variance, then scaled and shifted by channel.

    ValueError where num_channels is no multiple of num_groups.
    """

    def __init__(
        self,
        num_groups,
        num_channels,
        eps=1e-5,
        affine=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"[GroupNorm] num_channels={num_channels} is not divisible by "
                f"num_groups={num_groups}"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = Parameter(eager.empty((num_channels,), device=device, dtype=dtype))
            self.register_parameter(name, made if wanted else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
