"""Reads a pickle without running what it says: a small machine for the opcodes that data needs.

A pickle is a program, and Python's own machine calls whatever it names. This one knows a list of
names (Global); it calls only those listed as harmless, sets attributes only on objects of listed
classes that it made itself, and refuses everything else by name. Invariant: whatever the bytes
are, the end is a value or an UnpicklingError, and time and memory stay in proportion to the bytes.
"""

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from pickle import UnpicklingError

BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
DEPTH, WEIGHT = 64, 100_000  # of tuples in keys: Python hashes them by recursion, every time


class Global:
    """A listed name. value: what it stands for in data; make(*args): what a call of it does; new:
    what makes an object of it. None: that is refused.
    """

    __slots__ = ("make", "name", "new", "value")

    def __init__(self, name, value, make=None, new=None):
        self.name, self.value, self.make, self.new = name, value, make, new


def reject(what):
    raise UnpicklingError(f"[load] {what}")


def name_of(x):
    return x.name if type(x) is Global else type(x).__name__


# ---- what Python's own types may be made from


def demand(condition, what):
    if not condition:
        reject(f"malformed arguments for {what}")


def make_bytearray(*args):
    if len(args) == 2 and all(isinstance(a, str) for a in args):
        return bytearray(args[0], "latin-1")
    demand(not args or len(args) == 1 and isinstance(args[0], (bytes, bytearray)), "bytearray")
    return bytearray(*args)


def make_bytes(text, encoding="latin1"):
    """`_codecs.encode`, which is how protocol 2 writes bytes."""
    demand(isinstance(text, str) and encoding in ("latin1", "latin-1"), "_codecs.encode")
    return text.encode("latin-1")


def make_complex(*args):
    demand(all(isinstance(a, (int, float)) for a in args), "complex")
    return complex(*args)


def make_set(items=()):
    demand(isinstance(items, (list, tuple)), "set")
    return {hashable(x) for x in items}


def make_ordered(items=()):
    demand(isinstance(items, (list, tuple)), "OrderedDict")
    return OrderedDict((hashable(key), value) for key, value in items)


def make_counter(counts=None):
    demand(isinstance(counts, (dict, type(None))), "Counter")
    return Counter(counts)


def make_default(factory=None):
    demand(factory is None or factory in FACTORIES, "defaultdict")
    return defaultdict(factory)


def make_deque(items=(), most=None):
    demand(isinstance(items, (list, tuple)) and isinstance(most, (int, type(None))), "deque")
    return deque(items, most)


def hashable(key):
    """The key itself, if it is one whose hash takes little time and stack."""
    if not isinstance(key, tuple):
        return key
    level, total = [key], 0
    for _ in range(DEPTH):
        level = [x for t in level for x in t]
        total += len(level)
        level = [x for x in level if isinstance(x, tuple)]
        if not level:
            return key
        if total > WEIGHT:
            break
    reject("a key of tuples nested too deep")


FACTORIES = (list, dict, set, int, float, str, tuple, bool)
PLAIN = {}  # (module, name) -> Global
for _module in ("builtins", "__builtin__"):
    for _kind in FACTORIES:
        PLAIN[_module, _kind.__name__] = Global(_kind.__name__, _kind)
    for _kind, _make in (
        (set, make_set),
        (frozenset, lambda items=(): frozenset(make_set(items))),
        (bytearray, make_bytearray),
        (complex, make_complex),
    ):
        PLAIN[_module, _kind.__name__] = Global(_kind.__name__, _kind, _make)
for _kind, _make in (
    (OrderedDict, make_ordered),
    (Counter, make_counter),
    (defaultdict, make_default),
    (deque, make_deque),
):
    PLAIN["collections", _kind.__name__] = Global(_kind.__name__, _kind, _make)
PLAIN["_codecs", "encode"] = Global("encode", make_bytes, make_bytes)


class Unpickler:
    """find(module, name) -> Global, or raises; persistent(pid) -> the object of a persistent id;
    build(object, state) -> whether the object may take that state, and has. encoding: of the
    strings of Python 2.
    """

    def __init__(self, data, find, persistent, build, encoding="utf-8"):
        self.data, self.place, self.encoding = bytes(data), 0, encoding
        self.find, self.persistent, self.build_object = find, persistent, build
        self.stack, self.below, self.memo = [], [], {}
        self.copied = 0  # bytes and elements handed to calls
        self.outside = False  # in `persistent`, whose errors are its own

    def load(self):
        actions, data = ACTIONS, self.data
        try:
            while True:
                if self.place >= len(data):
                    reject("corrupt pickle: it ends without a STOP")
                code = data[self.place]
                self.place += 1
                if code == 0x2E:  # STOP
                    return value(self.stack.pop())
                action = actions.get(code)
                if action is None:
                    reject(f"opcode {bytes([code])!r} at byte {self.place - 1} is none of data's")
                action(self)
        except (RecursionError, MemoryError, *BROKEN) as error:
            if self.outside:
                raise
            raise UnpicklingError(
                f"[load] corrupt pickle at byte {self.place}: {type(error).__name__}: {error}"
            ) from error

    # -- bytes

    def take(self, count):
        end = self.place + count
        if count < 0 or end > len(self.data):
            reject(f"corrupt pickle: truncated at byte {self.place}")
        out, self.place = self.data[self.place : end], end
        return out

    def line(self):
        end = self.data.index(b"\n", self.place)
        out, self.place = self.data[self.place : end], end + 1
        return out

    def number(self, size):
        return int.from_bytes(self.take(size), "little")

    # -- the stack: `stack` since the last mark, `below` what lay under each mark

    def push(self, x):
        self.stack.append(x)

    def mark(self):
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self):
        """What was pushed since the last mark, as values."""
        found, self.stack = self.stack, self.below.pop()
        return [value(x) for x in found]

    def pop_many(self, count):
        if len(self.stack) < count:
            reject(f"corrupt pickle: the stack is too short at byte {self.place}")
        found = [value(x) for x in self.stack[len(self.stack) - count :]]
        del self.stack[len(self.stack) - count :]
        return found

    # -- objects

    def charge(self, args):
        """Calls copy what they are given: a small pickle must not have a large thing copied
        again and again.
        """
        sized = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
        self.copied += sum(len(a) for a in args if isinstance(a, sized))
        if self.copied > 64 * len(self.data) + (1 << 20):
            reject("malicious pickle: the same data copied over and over")

    def reduce(self):
        args, called = self.stack.pop(), self.stack.pop()
        if type(called) is not Global or called.make is None:
            reject(f"a call of {name_of(called)}, which may not be called")
        demand(type(args) is tuple, called.name)
        self.charge(args)
        self.push(called.make(*args))

    def new(self, named=False):
        known = self.stack.pop() if named else {}
        args, cls = self.stack.pop(), self.stack.pop()
        if type(cls) is not Global or cls.new is None:
            reject(f"an object of {name_of(cls)}, which may not be made")
        demand(type(args) is tuple and type(known) is dict, cls.name)
        self.charge(args)
        self.push(cls.new(*args, **known))

    def build(self):
        state, target = self.stack.pop(), self.stack[-1]
        self.charge(state if isinstance(state, tuple) else (state,))
        if type(target) is Global or not self.build_object(target, state):
            reject(f"a state for {name_of(target)}, which takes none")

    def load_persistent(self):
        (pid,) = self.pop_many(1)
        self.outside = True
        self.push(self.persistent(pid))
        self.outside = False

    def named(self, module, name):
        self.push(self.find(module, name))

    def stack_global(self):
        module, name = self.pop_many(2)
        demand(isinstance(module, str) and isinstance(name, str), "a global")
        self.named(module, name)

    def recall(self, key):
        self.push(self.memo[key])

    def remember(self, key):
        self.memo[key] = self.stack[-1]

    def extend(self, items):
        target = self.stack[-1]
        if not isinstance(target, (list, deque)):
            reject(f"elements for {name_of(target)}")
        target.extend(items)

    def set_items(self, items):
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            reject(f"items for {name_of(target)}")
        for i in range(0, len(items), 2):
            target[hashable(items[i])] = items[i + 1]

    def add_items(self, items):
        target = self.stack[-1]
        if type(target) is not set:
            reject(f"elements for {name_of(target)}")
        target.update(map(hashable, items))

    def make_dict(self, items):
        self.push({})
        self.set_items(items)

    def text_number(self):
        text = self.line()
        self.push({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text))

    def pop_any(self):
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self.below.pop()

    def text(self, raw):
        self.push(raw if self.encoding == "bytes" else raw.decode(self.encoding))


def value(x):
    return x.value if type(x) is Global else x


def utf8(raw):
    return raw.decode("utf-8", "surrogatepass")


def signed(raw):
    return int.from_bytes(raw, "little", signed=True)


def protocol(u):
    if u.number(1) > 5:
        reject("a pickle of a protocol beyond 5")


ACTIONS = {
    ord(code): action
    for code, action in {
        "\x80": protocol,
        "\x95": lambda u: u.take(8),  # a frame
        # constants
        "N": lambda u: u.push(None),
        "\x88": lambda u: u.push(True),
        "\x89": lambda u: u.push(False),
        "K": lambda u: u.push(u.number(1)),
        "M": lambda u: u.push(u.number(2)),
        "J": lambda u: u.push(signed(u.take(4))),
        "\x8a": lambda u: u.push(signed(u.take(u.number(1)))),
        "\x8b": lambda u: u.push(signed(u.take(u.number(4)))),
        "I": Unpickler.text_number,
        "L": lambda u: u.push(int(u.line().rstrip(b"L"))),
        "F": lambda u: u.push(float(u.line())),
        "G": lambda u: u.push(struct.unpack(">d", u.take(8))[0]),
        "X": lambda u: u.push(utf8(u.take(u.number(4)))),
        "\x8c": lambda u: u.push(utf8(u.take(u.number(1)))),
        "\x8d": lambda u: u.push(utf8(u.take(u.number(8)))),
        "V": lambda u: u.push(u.line().decode("raw-unicode-escape")),
        "T": lambda u: u.text(u.take(u.number(4))),
        "U": lambda u: u.text(u.take(u.number(1))),
        "B": lambda u: u.push(u.take(u.number(4))),
        "C": lambda u: u.push(u.take(u.number(1))),
        "\x8e": lambda u: u.push(u.take(u.number(8))),
        "\x96": lambda u: u.push(bytearray(u.take(u.number(8)))),
        # containers
        "(": Unpickler.mark,
        "0": Unpickler.pop_any,
        "1": lambda u: u.since_mark(),
        "2": lambda u: u.push(u.stack[-1]),
        ")": lambda u: u.push(()),
        "t": lambda u: u.push(tuple(u.since_mark())),
        "\x85": lambda u: u.push(tuple(u.pop_many(1))),
        "\x86": lambda u: u.push(tuple(u.pop_many(2))),
        "\x87": lambda u: u.push(tuple(u.pop_many(3))),
        "]": lambda u: u.push([]),
        "l": lambda u: u.push(u.since_mark()),
        "a": lambda u: u.extend(u.pop_many(1)),
        "e": lambda u: u.extend(u.since_mark()),
        "}": lambda u: u.push({}),
        "d": lambda u: u.make_dict(u.since_mark()),
        "s": lambda u: u.set_items(u.pop_many(2)),
        "u": lambda u: u.set_items(u.since_mark()),
        "\x8f": lambda u: u.push(set()),
        "\x90": lambda u: u.add_items(u.since_mark()),
        "\x91": lambda u: u.push(frozenset(map(hashable, u.since_mark()))),
        # names, calls, states
        "c": lambda u: u.named(u.line().decode(), u.line().decode()),
        "\x93": Unpickler.stack_global,
        "R": Unpickler.reduce,
        "\x81": Unpickler.new,
        "\x92": lambda u: u.new(named=True),
        "b": Unpickler.build,
        "Q": Unpickler.load_persistent,
        # the memo
        "p": lambda u: u.remember(int(u.line())),
        "q": lambda u: u.remember(u.number(1)),
        "r": lambda u: u.remember(u.number(4)),
        "\x94": lambda u: u.remember(len(u.memo)),
        "g": lambda u: u.recall(int(u.line())),
        "h": lambda u: u.recall(u.number(1)),
        "j": lambda u: u.recall(u.number(4)),
    }.items()
}
