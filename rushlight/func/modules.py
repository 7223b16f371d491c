"""The states of several modules as one; modules without a state that calls write."""

from rushlight import eager
from rushlight.nn.batchnorm import _BatchNorm


def stack_module_state(models):
    """({name: the parameters of all models, stacked}, the same of buffers): for `vmap` over an
    ensemble of modules of one class. Parameters are new leaves. RuntimeError for no models, for
    models of several classes or modes.
    """
    models = list(models)
    if not models:
        raise RuntimeError("[stack_module_state] takes at least one model")
    if any(m.training != models[0].training for m in models):
        raise RuntimeError("[stack_module_state] all models are in training mode, or none")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("[stack_module_state] all models are of the same class")
    parameters, buffers = {}, {}
    for name, first in models[0].named_parameters():
        stacked = eager.stack([dict(m.named_parameters())[name] for m in models]).detach()
        parameters[name] = stacked.requires_grad_(first.requires_grad)
    for name, first in models[0].named_buffers():
        stacked = eager.stack([dict(m.named_buffers())[name] for m in models]).detach()
        buffers[name] = stacked.requires_grad_(first.requires_grad)
    return parameters, buffers


def replace_all_batch_norm_modules_(root):
    """root, in place: its batch norms (itself, if it is one) keep no running statistics and use
    those of each batch, so that they write nothing when `vmap` calls them.
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
