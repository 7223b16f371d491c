"""`rushlight.utils.tensorboard`: what a run reports, written as TensorBoard's event files.

The files are made here, so that neither the `tensorboard` package nor protobuf is needed to write
them; to look at them it is.
"""

from .records import RecordWriter
from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
