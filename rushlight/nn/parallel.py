"""`nn.parallel`: data parallelism, on as many devices as there are here: one.

Results are those of PyTorch: DataParallel divides a batch only to compute it sooner.
"""

from rushlight.nn.module import Module


class DataParallel(Module):
    """Calls `module` with the whole batch, on the device where its parameters are. The parameters
    are under `module`, so that state_dicts are PyTorch's. device_ids: None, or at most one
    (NotImplementedError for more).
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        chosen = list(device_ids or ())
        if len(chosen) > 1:
            raise NotImplementedError(
                f"[DataParallel] a batch is not divided among devices, got device_ids={chosen}"
            )
        from rushlight.eager.casting import has_cuda

        found = has_cuda()
        self.device_ids = (chosen or [0]) if found else []
        first = self.device_ids[0] if self.device_ids else None
        self.output_device = first if output_device is None else output_device
        self.module, self.dim = module, dim

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """The function that DataParallel is a module of."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    wrapped = DataParallel(module, device_ids, output_device, dim)
    return wrapped(*inputs, **(module_kwargs or {}))


class DistributedDataParallel(Module):
    """Needs a process group, of which there are none (ValueError, as PyTorch before
    init_process_group)."""

    def __init__(self, module, *args, **kwargs):
        super().__init__()
        raise ValueError(
            "[DistributedDataParallel] the default process group is not initialised, and "
            "torch.distributed is not available"
        )
