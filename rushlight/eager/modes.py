"""The mode word's gradient bits as PyTorch's context managers; each is a decorator too."""

import functools
import inspect

from rushlight import _core


def is_compiling():
    """True while a function is captured, False when it runs."""
    return False


class Mode:
    """Sets gradient recording on or off; restores what was before, whatever happens."""

    def __init__(self, on):
        self.on, self.before = bool(on), []

    def __enter__(self):
        self.before.append(_core.mode())
        self.enter()

    def enter(self):
        _core.set_grad_enabled(self.on)

    def __exit__(self, *_):
        _core.set_mode(self.before.pop())

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            return self.around_generator(function)

        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self.again():
                return function(*args, **kwargs)

        return inside

    def around_generator(self, function):
        """The mode holds while the generator's own code runs, not while it waits."""

        @functools.wraps(function)
        def inside(*args, **kwargs):
            generator = function(*args, **kwargs)
            step, value = generator.send, None
            while True:
                try:
                    with self.again():
                        made = step(value)
                except StopIteration as end:
                    return end.value
                try:
                    value = yield made
                    step = generator.send
                except GeneratorExit:
                    with self.again():
                        generator.close()
                    raise
                except BaseException as error:
                    step, value = generator.throw, error

        return inside

    def again(self):
        return Mode(self.on)


class no_grad(Mode):
    """Operator calls inside are not recorded: `with no_grad():` or `@no_grad()`."""

    def __init__(self):
        super().__init__(False)

    def __new__(cls, function=None):
        return super().__new__(cls) if function is None else cls()(function)

    def again(self):
        return no_grad()


class enable_grad(Mode):
    """Operator calls inside are recorded, also inside no_grad."""

    def __init__(self):
        super().__init__(True)

    def again(self):
        return enable_grad()


class set_grad_enabled(Mode):
    """Sets recording at once; as a context manager it is undone at the end."""

    def __init__(self, mode):
        super().__init__(mode)
        self.outer = _core.mode()
        self.enter()

    def __enter__(self):
        self.before.append(self.outer)
        self.enter()

    def __call__(self, function):
        _core.set_mode(self.outer)
        return super().__call__(function)

    def again(self):
        mode = set_grad_enabled(self.on)
        _core.set_mode(mode.outer)
        return mode


INFERENCE = 16  # docs/native.md, mode word


class inference_mode(Mode):
    """As no_grad; tensors made inside are never recorded."""

    def __init__(self, mode=True):
        super().__init__(mode)

    def enter(self):
        word = _core.mode()
        _core.set_mode(word | INFERENCE if self.on else word & ~INFERENCE)

    def again(self):
        return inference_mode(self.on)


is_grad_enabled = _core.is_grad_enabled
