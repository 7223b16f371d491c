"""Optimizers and schedules of the learning rate."""

from rushlight.optim.adam import Adam, AdamW
from rushlight.optim.optimizer import Optimizer
from rushlight.optim.sgd import SGD

from . import lr_scheduler
