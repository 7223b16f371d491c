"""Modules without initial values: for weights that are loaded right away."""


def skip_init(module_cls, *args, **kwargs):
    """``module_cls(*args, **kwargs)`` with its parameters left as memory is found.

    The class draws its initial values in ``reset_parameters``, as Linear, Embedding and the norms
    do; TypeError otherwise.
    """
    if not hasattr(module_cls, "reset_parameters"):
        raise TypeError(f"skip_init: {module_cls.__name__} has no reset_parameters to leave out")
    bare = type(module_cls.__name__, (module_cls,), {"reset_parameters": lambda self: None})
    module = bare(*args, **kwargs)
    module.__class__ = module_cls
    return module
