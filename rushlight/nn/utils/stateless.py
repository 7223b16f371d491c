"""Modules called with other tensors in the places of their parameters and buffers."""


def places_of(module):
    """{dotted name: (owner, its table, the name there)} of every parameter and buffer."""
    found = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in (owner._parameters, owner._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    found[f"{path}.{name}" if path else name] = (owner, table, name)
    return found


def tied_values(given, places):
    """`given`, and the same values for other names of the tensors that they replace."""
    groups = {}
    for name, (_, table, key) in places.items():
        groups.setdefault(id(table[key]), []).append(name)
    values = dict(given)
    for names in groups.values():
        named = [n for n in names if n in given]
        if len({id(given[n]) for n in named}) > 1:
            raise ValueError(
                f"[functional_call] {sorted(named)} are tied, and more than one of them is given: "
                "tie_weights=False keeps them apart"
            )
        for n in names if named else ():
            values[n] = given[named[0]]
    return values


def functional_call(
    module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False
):
    """module(*args, **kwargs) with these tensors in the places of its parameters and buffers.

    parameter_and_buffer_dicts: {dotted name: tensor}, or several such dicts, whose names must
    differ (ValueError). What is not named stays. tie_weights: other names of one tensor get its
    new value too. strict: every name must be there, and no other (RuntimeError). args: a tuple, or
    one argument.
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, (list, tuple)):
        given = {}
        for part in parameter_and_buffer_dicts:
            if not isinstance(part, dict):
                raise ValueError("[functional_call] takes dictionaries")
            for name in part:
                if name in given:
                    raise ValueError(f"[functional_call] {name} is in several dictionaries")
            given.update(part)
    else:
        raise ValueError(
            "[functional_call] takes a dict or several in a list or tuple, got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    places = places_of(module)
    values = tied_values(given, places) if tie_weights else given
    if strict:
        missing = sorted(set(places) - set(values))
        unknown = sorted(set(values) - set(places))
        if missing or unknown:
            raise RuntimeError(
                f"[functional_call] missing keys: {missing}, unexpected keys: {unknown}"
            )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    before = []
    try:
        for name, value in values.items():
            if name in places:
                owner, table, key = places[name]
                before.append((owner, table, key, table[key]))
                table[key] = value
                owner._changed()
        return module(*args, **(kwargs or {}))
    finally:
        for owner, table, key, value in reversed(before):
            table[key] = value
            owner._changed()
