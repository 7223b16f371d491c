"""A module's state as a dictionary of tensors, and back.

``save_state`` takes a Module and returns an OrderedDict from dotted names to tensors that share
the module's memory. ``load_state`` copies such a dictionary into a module. Invariant: when it
raises because keys are missing, unexpected or of another size, no tensor of the module has
changed (post hooks, which may forgive missing keys, see the loaded state: a module tree that has
them is judged after copying).
"""

import warnings
from collections import OrderedDict, namedtuple

from rushlight import eager
from rushlight.nn.parameter import Parameter, is_lazy

Tensor = eager.Tensor
EXTRA_STATE = "_extra_state"


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What ``load_state_dict`` returns: two lists of names."""

    __slots__ = ()

    def __repr__(self):
        return (
            "<All keys matched successfully>"
            if not self.missing_keys and not self.unexpected_keys
            else super().__repr__()
        )

    __str__ = __repr__


def save_state(module, destination, prefix, keep_vars):
    """Writes the state of ``module`` and its submodules into ``destination`` (made here if None)
    and returns it.
    """
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    local_metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local_metadata
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(
                destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
            )
    for hook in module._state_dict_hooks.values():
        answer = hook(module, destination, prefix, local_metadata)
        if getattr(hook, "_public", False):
            if answer is not None:
                raise RuntimeError("state_dict post-hook must return None")
        elif answer is not None:
            destination = answer
    return destination


def save_own_state(module, destination, prefix, keep_vars):
    """Writes the parameters and persistent buffers that belong to ``module`` itself."""
    for name, tensor in own_state(module):
        if tensor is not None:
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
    if has_extra_state(module, "get_extra_state"):
        destination[prefix + EXTRA_STATE] = module.get_extra_state()


def own_state(module):
    """(name, tensor or None) of each parameter and persistent buffer of ``module`` itself."""
    yield from module._parameters.items()
    for name, buffer in module._buffers.items():
        if name not in module._non_persistent_buffers_set:
            yield name, buffer


def has_extra_state(module, method):
    from rushlight.nn.module import Module

    return getattr(type(module), method, None) is not getattr(Module, method)


def load_state(module, state, strict, assign):
    """Copies ``state`` into ``module``; returns IncompatibleKeys.

    RuntimeError, PyTorch's text: a size differs, or (strict) a key is missing or unexpected.
    """
    if not hasattr(state, "keys") or not hasattr(state, "items"):
        raise TypeError(f"[load_state_dict] Expected state_dict to be dict-like, got {type(state)}")
    missing, unexpected, errors, copies = [], [], [], []
    metadata = getattr(state, "_metadata", None)
    state = OrderedDict(state)
    if metadata is not None:
        state._metadata = metadata
    keys = IncompatibleKeys(missing, unexpected)
    post_hooks = []

    def visit(owner, own, prefix):
        local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
        local_metadata = dict(local_metadata, assign_to_params_buffers=assign, copies=copies)
        owner._load_from_state_dict(own, prefix, local_metadata, True, missing, unexpected, errors)
        for name, child in owner._modules.items():
            if child is not None:
                inside = f"{prefix}{name}."
                visit(
                    child,
                    OrderedDict((k, v) for k, v in own.items() if k.startswith(inside)),
                    inside,
                )
        post_hooks.extend((hook, owner) for hook in owner._load_state_dict_post_hooks.values())

    visit(module, state, "")
    if errors or not post_hooks:
        judge(module, keys, errors, strict)
    with eager.no_grad():
        for copy in copies:
            copy()
    for hook, owner in post_hooks:
        if hook(owner, keys) is not None:
            raise AssertionError(
                "[load_state_dict] a post-hook changes incompatible_keys in place and returns None"
            )
    judge(module, keys, errors, strict)
    return keys


def judge(module, keys, errors, strict):
    """Raises if the state did not fit."""
    errors = list(errors)
    if strict:
        for word, names in (("Unexpected", keys.unexpected_keys), ("Missing", keys.missing_keys)):
            if names:
                quoted = ", ".join(f'"{name}"' for name in names)
                errors.insert(0, f"{word} key(s) in state_dict: {quoted}. ")
    if errors:
        raise RuntimeError(
            "Error(s) in loading state_dict for {}:\n\t{}".format(
                type(module).__name__, "\n\t".join(errors)
            )
        )


def load_own_state(module, state, prefix, local_metadata, strict, missing, unexpected, errors):
    """Prepares what ``state`` holds for ``module`` itself; reports into the three lists.

    The copies are left to the caller in ``local_metadata['copies']`` or, without such a list,
    made at once.
    """
    for hook in module._load_state_dict_pre_hooks.values():
        hook(state, prefix, local_metadata, strict, missing, unexpected, errors)
    assign = local_metadata.get("assign_to_params_buffers", False)
    copies = local_metadata.get("copies")
    prepared = []
    known = dict(own_state(module))
    for name, target in known.items():
        key = prefix + name
        if target is None:
            continue
        if key not in state:
            if strict:
                missing.append(key)
            continue
        given = state[key]
        if not isinstance(given, Tensor):
            errors.append(f"'{key}': the checkpoint holds a {type(given)}, which is no tensor")
            continue
        if is_lazy(target):  # and what is given: neither has a shape or values
            continue
        if target.dim() == 0 and given.dim() == 1:
            if given.shape[0] != 1:
                errors.append(size_mismatch(key, given, target))
                continue
            given = given[0]
        if given.shape != target.shape:
            errors.append(size_mismatch(key, given, target))
            continue
        prepared.append(
            lambda *args, it=(module, name, key, target, given): (
                assign_tensor if assign else copy_tensor
            )(*it)
        )
    _load_extra_state(module, state, prefix, strict, missing, unexpected, prepared)
    if strict:
        for key in state:
            if key.startswith(prefix) and key != prefix + EXTRA_STATE:
                first, *rest = key[len(prefix) :].split(".", 1)
                if first not in known if not rest else first not in module._modules:
                    unexpected.append(key)
    if copies is not None:
        copies.extend(prepared)
    else:
        with eager.no_grad():
            for copy in prepared:
                copy()


def _load_extra_state(module, state, prefix, strict, missing, unexpected, prepared):
    key = prefix + EXTRA_STATE
    if has_extra_state(module, "set_extra_state"):
        if key in state:
            prepared.append(lambda: module.set_extra_state(state[key]))
        elif strict:
            missing.append(key)
    elif strict and key in state:
        unexpected.append(key)


def size_mismatch(key, given, target):
    return f"size mismatch for {key}: {given.shape} in the checkpoint, {target.shape} in the model."


def copy_tensor(module, name, key, target, given):
    if target.is_meta and not given.is_meta:
        warnings.warn(
            f"for {key}: values cannot be copied into a meta parameter, so nothing was loaded: "
            "assign=True would put the checkpoint's tensor in its place",
            UserWarning,
            stacklevel=2,
        )
    try:
        target.copy_(given)
    except Exception as error:
        raise RuntimeError(
            f"'{key}' ({target.shape} in the model, {given.shape} in the checkpoint) could not be "
            f"copied: {error.args}"
        ) from error


def assign_tensor(module, name, key, target, given):
    """The given tensor itself takes the place; a Parameter stays a Parameter and keeps its
    requires_grad.
    """
    if isinstance(target, Parameter):
        if isinstance(given, Parameter):
            given.requires_grad_(target.requires_grad)
        else:
            given = Parameter(given, requires_grad=target.requires_grad)
    setattr(module, name, given)
