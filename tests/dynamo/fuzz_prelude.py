"""What every random program may use: helpers, classes and context managers."""

PRELUDE = """
import contextlib, functools, itertools, operator, math, collections, dataclasses, enum
import rushlight as rl

@contextlib.contextmanager
def managed(log, name):
    log.append(("in", name))
    try:
        yield name
    finally:
        log.append(("out", name))

class Guarded:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("enter")
        return self
    def __exit__(self, kind, error, tb):
        self.log.append(("exit", kind.__name__ if kind else None))
        return self.swallow and kind is ValueError

class Box:
    total = 0
    def __init__(self, value, k=1):
        self.value, self.k = value, k
    @property
    def twice(self):
        return self.value * 2
    def bump(self, by):
        self.k += by
        return self
    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), self.k)
    def __eq__(self, other):
        return isinstance(other, Box) and self.k == other.k
    def __hash__(self):
        return self.k
    def __len__(self):
        return abs(self.k)

class Color(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass
class Pair:
    left: object
    right: object = 3

Point = collections.namedtuple("Point", "u v")
LEVEL = 0

def helper(t, k=2, *rest, scale=1.0, **named):
    if k > 3:
        return t - k
    return t * k + scale + len(rest) + len(named)

def noisy(t, k):
    u = t + k
    print("noisy", u.sum().item())
    return u * 2

def count(n, t):
    for i in range(n):
        got = yield t + i
        if got:
            t = t * got
    return n

class Custom(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code

class Shape:
    __match_args__ = ("name", "size")
    def __init__(self, name, size):
        self.name, self.size = name, size

@dataclasses.dataclass
class Circle:
    r: object

@dataclasses.dataclass
class Rect:
    w: object
    h: object = 2
    tags: list = dataclasses.field(default_factory=list)
    def area(self):
        return self.w * self.h
    def __post_init__(self):
        self.tags.append("made")

@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 4
    @property
    def label(self):
        return self.name.lower()

class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    EXEC = enum.auto()

class Thermo:
    def __init__(self, c):
        self._c, self.log = c, []
    @property
    def celsius(self):
        return self._c
    @celsius.setter
    def celsius(self, v):
        self.log.append(v)
        if v < -273:
            raise ValueError("too cold")
        self._c = v
    @celsius.deleter
    def celsius(self):
        del self._c
    @property
    def fahrenheit(self):
        return self.celsius * 9 / 5 + 32
    @functools.cached_property
    def slow(self):
        self.log.append("slow")
        return [self._c]

class Proxy:
    def __init__(self, data):
        object.__setattr__(self, "data", dict(data))
        object.__setattr__(self, "log", [])
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(name)
        return self.data.get(name)
    def __setattr__(self, name, value):
        self.log.append(("set", name))
        self.data[name] = value
    def __delattr__(self, name):
        del self.data[name]
    def __getitem__(self, key):
        return self.data[key]
    def __setitem__(self, key, value):
        self.data[key] = value
    def __contains__(self, key):
        return key in self.data
    def __len__(self):
        return len(self.data)
    def __iter__(self):
        yield from self.data
    def __call__(self, k):
        return [k, *self.data]
    def __eq__(self, other):
        return isinstance(other, Proxy) and self.data.keys() == other.data.keys()
    __hash__ = None

class Root:
    def __init__(self, v):
        self.v = v
    def who(self):
        return "root"
    def base(self):
        return self.v * 2
    @classmethod
    def make(cls, v):
        return cls(v)
    @staticmethod
    def helper(k):
        return k + 1

class Left(Root):
    def who(self):
        return "left+" + super().who()

class Right(Root):
    def who(self):
        return "right+" + super().who()
    def base(self):
        return super().base() + 1

class Deep(Left, Right):
    __slots__ = ("spare",)
    def who(self):
        return "deep+" + super().who()

class Node:
    def __init__(self, value, next=None):
        self.value, self.next = value, next

class Counted:
    def __init__(self):
        self.n = 0
    def __iter__(self):
        return self
    def __next__(self):
        self.n += 1
        if self.n > 3:
            raise StopIteration
        return self.n * 2

class Scale(rl.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.k = k
        ctx.save_for_backward(t)
        return t * k
    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * ctx.k + t * 0, None

@functools.total_ordering
class Temp:
    def __init__(self, v):
        self.v = v
    def __lt__(self, other):
        return self.v < other.v
    def __eq__(self, other):
        return isinstance(other, Temp) and self.v == other.v
    def __hash__(self):
        return hash(self.v)
    def __add__(self, other):
        return ("add", self.v, other)
    def __radd__(self, other):
        return ("radd", other, self.v)
    def __mul__(self, other):
        return other * self.v
    def __neg__(self):
        return Temp(-self.v).v
    def __abs__(self):
        return abs(self.v)
    def __index__(self):
        return self.v
    def __bool__(self):
        return self.v != 0
    def __format__(self, spec):
        return format(self.v, spec)

class Plain:
    total = 1
    def __init__(self, v):
        self.v = v
    @property
    def name(self):
        return "plain"
    @property
    def twice(self):
        return self.v * 2
    def describe(self, *, sep):
        return sep.join([self.name, type(self).__name__])
    def __call__(self, *args, **named):
        return len(args), sorted(named)

class Sub(Plain):
    def __init__(self, v, k=0):
        super().__init__(v)
        self.k = k
    @property
    def name(self):
        return "sub of " + super().name

class Slots:
    __slots__ = ("a", "b", "c")
    def __init__(self, a):
        self.a = a

class Registry:
    def __init__(self):
        self.items = {}
    def add(self, name):
        def register(function):
            self.items[name] = function
            return function
        return register
    def names(self):
        return list(self.items)
    def __contains__(self, name):
        return name in self.items

class Chain:
    def __init__(self, value):
        self.value = value
    def plus(self, k):
        return Chain(self.value + k)
    def times(self, k):
        self.value = self.value * k
        return self
    def __enter__(self):
        return Chain(self.value - 1)
    def __exit__(self, *error):
        self.value = None
        return False
    def __getattr__(self, name):
        raise AttributeError(name)
"""
