"""Fake tensors: shapes, strides, dtypes and devices without data; symbolic sizes and the guards
they leave."""

from .tensor import FakeTensor, fake, guards, symbolic
