"""`rushlight.utils`: loading data (`utils.data`), gradient checkpointing (`utils.checkpoint`),
what a run reports (`utils.tensorboard`).
"""


def __getattr__(name):
    if name in ("data", "checkpoint", "tensorboard"):
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
