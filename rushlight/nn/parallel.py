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


def scatter(inputs, target_gpus, dim=0):
    """The inputs for each device, as a list; NotImplementedError for more devices than one."""
    if len(target_gpus) > 1:
        raise NotImplementedError(f"[scatter] a batch is not divided among {list(target_gpus)}")
    return [inputs]


def gather(outputs, target_device, dim=0):
    """The results of the devices as one, joined along `dim`."""
    from rushlight import eager

    first = outputs[0]
    if first is None or len(outputs) == 1:
        return first
    if isinstance(first, eager.Tensor):
        if first.dim() == 0:
            return eager.stack(list(outputs))
        return eager.cat(list(outputs), dim)
    if isinstance(first, dict):
        return type(first)((key, gather([o[key] for o in outputs], target_device, dim))
                           for key in first)  # fmt: skip
    parts = [gather(list(part), target_device, dim) for part in zip(*outputs, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


def replicate(network, devices, detach=False):
    """The module for each device; NotImplementedError for more than one."""
    if len(devices) > 1:
        raise NotImplementedError(f"[replicate] a module is not copied to {list(devices)}")
    return [network]


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """Each module's result for its inputs (a tuple each, or one argument), one after another."""
    named = kwargs_tup or ({},) * len(modules)
    if not len(modules) == len(inputs) == len(named):
        raise AssertionError(
            f"[parallel_apply] {len(modules)} modules, {len(inputs)} inputs, {len(named)} keywords"
        )
    return [
        module(*(given if isinstance(given, (list, tuple)) else (given,)), **more)
        for module, given, more in zip(modules, inputs, named, strict=True)
    ]
