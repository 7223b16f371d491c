"""Optimizers and schedules of the learning rate."""

from rushlight.optim.adafactor import Adafactor
from rushlight.optim.adam import Adam, AdamW
from rushlight.optim.adaptive import (
    ASGD,
    Adadelta,
    Adagrad,
    Adamax,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)
from rushlight.optim.lbfgs import LBFGS
from rushlight.optim.muon import Muon
from rushlight.optim.optimizer import Optimizer
from rushlight.optim.sgd import SGD

from . import lr_scheduler, swa_utils
