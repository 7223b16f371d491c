"""Symbolic integers: polynomials in named sizes, each with the value it was first seen with (its
hint).

Takes and returns ints where nothing is unknown. Equal polynomials are equal without a question; any
other comparison is answered from the hints and recorded in the environment, so that it can become a
guard. A comparison that follows from the bounds of its names leaves no guard: bounds are known of
themselves (a size is never negative), declared, or follow from the guards left before.
"""

import operator
from math import inf


class ShapeEnv:
    """The sizes of one capture: name -> hint, and the guards that its comparisons left."""

    def __init__(self):
        self.hints = {}
        self.bounds = {}  # name -> (least, greatest), either end may be infinite
        self.guards = []  # (text, answer), in the order asked, without repetition
        self.quotients = {}  # name of an opaque quotient -> (dividend, divisor)
        self.relations = []  # the same as (relation, left, right, answer)

    def size(self, name, hint, least=-inf):
        """The named number; `least` where it is known without a guard (0 for a size)."""
        self.hints[name] = int(hint)
        if least > -inf:
            self.bounds[name] = (least, inf)
        return Sym(self, {(name,): 1})

    def bound(self, x, least=None, greatest=None):
        """From now on x lies between these: guards, from which comparisons then follow. ValueError
        where the hint does not."""
        for relation, a, b in (("<=", least, x), ("<=", x, greatest)):
            if a is None or b is None:
                continue
            if not int(a) <= int(b):
                raise ValueError(f"[sym] {x} is {int(x)}: not between {least} and {greatest}")
            if isinstance(a, Sym):
                a.ask(relation, b, True)
            elif isinstance(b, Sym):
                b.ask("<", a, False)

    def fix(self, x, value):
        """From now on x is this very value."""
        x.ask("==", value, True)

    def guard(self, text, answer):
        if (text, answer) not in self.guards:
            self.guards.append((text, answer))
        return answer


def terms(x):
    return x.terms if isinstance(x, Sym) else {(): int(x)} if x else {}


def polynomial(env, t):
    t = {m: c for m, c in t.items() if c}
    return t.get((), 0) if all(m == () for m in t) else Sym(env, t)


def multiplied(a, b):
    ends = [x * y if x and y else 0 for x in a for y in b]
    return min(ends), max(ends)


def interval(x):
    """(least, greatest) value that an int or a polynomial can take, by the bounds of its names."""
    if not isinstance(x, Sym):
        return int(x), int(x)
    low = high = 0
    for names, c in x.terms.items():
        product = (c, c)
        for name in names:
            product = multiplied(product, name_interval(x.env, name))
        low, high = low + product[0], high + product[1]
    return low, high


def name_interval(env, name):
    low, high = env.bounds.get(name, (-inf, inf))
    if name in env.quotients:
        top, bottom = map(interval, env.quotients[name])
        if bottom[0] > 0:
            ends = [floor_divided(a, b) for a in top for b in bottom]
            low, high = max(low, min(ends)), min(high, max(ends))
    return low, high


def floor_divided(a, b):
    """a // b for b > 0, either infinite."""
    if b == inf:
        return 0 if a >= 0 else -1 if a > -inf else -inf
    return a // b if abs(a) < inf else a


def narrow(env, relation, difference, answer):
    """What an answered comparison of `difference` with 0 says of a name alone in it."""
    names = [m for m in difference.terms if m]
    if len(names) != 1 or len(names[0]) != 1:
        return
    name, c, d = names[0][0], difference.terms[names[0]], difference.terms.get((), 0)
    low, high = env.bounds.get(name, (-inf, inf))
    if relation == "==":
        if d % c:
            return
        value = -d // c
        if answer:
            low = high = value
        else:
            low, high = low + (value == low), high - (value == high)
    else:
        if not answer:  # not d < 0 is -d <= 0
            c, d, relation = -c, -d, "<=" if relation == "<" else "<"
        d += relation == "<"  # of integers: c * name + d <= 0
        if c > 0:
            high = min(high, -d // c)
        else:
            low = max(low, -(d // c))
    env.bounds[name] = (low, high)


def decided(relation, difference):
    """The answer that the bounds give, else None."""
    low, high = interval(difference)
    if relation == "==":
        return False if low > 0 or high < 0 else True if low == high == 0 else None
    if high < 0 or high == 0 and relation == "<=":
        return True
    return False if low > 0 or low == 0 and relation == "<" else None


def hint(x):
    """The value this size was first seen with; an int is its own."""
    return int(x)


class Sym:
    """A polynomial: {(name, ...): coefficient}."""

    __slots__ = ("env", "terms")
    __rushlight_value__ = True  # core hands calls with one to the dispatcher: it is no plain number

    def __init__(self, env, terms):
        self.env, self.terms = env, terms

    def evaluate(self, values):
        """The value under {name: int}; names of opaque quotients are looked up among the hints'
        texts.
        """
        total = 0
        for names, c in self.terms.items():
            for n in names:
                c *= values[n] if n in values else quotient(n, values, self.env)
            total += c
        return total

    def __int__(self):
        return self.evaluate(self.env.hints)

    def __str__(self):
        products = [
            "*".join([*([str(c)] if c != 1 or not names else []), *names])
            for names, c in self.terms.items()
        ]
        return products[0] if len(products) == 1 else f"({' + '.join(products)})"

    def __add__(self, other):
        t = dict(self.terms)
        for m, c in terms(other).items():
            t[m] = t.get(m, 0) + c
        return polynomial(self.env, t)

    def __mul__(self, other):
        t = {}
        for m, c in self.terms.items():
            for n, d in terms(other).items():
                key = tuple(sorted(m + n))
                t[key] = t.get(key, 0) + c * d
        return polynomial(self.env, t)

    __radd__, __rmul__, __repr__ = __add__, __mul__, __str__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -1 * other

    def __rsub__(self, other):
        return -1 * self + other

    def __hash__(self):
        return hash(frozenset(self.terms.items()))

    def __index__(self):
        """Python's own code asks for a plain int (math.sqrt, range): from now on it is this one."""
        value = int(self)
        self.ask("==", value, True)
        return value

    def __floordiv__(self, other):
        if divided := divide(self, other):
            return divided
        name = f"({self} // {other})"
        self.env.quotients[name] = (self, other)
        return self.env.size(name, int(self) // int(other))

    def __mod__(self, other):
        return self - (self // other) * other

    def __rfloordiv__(self, other):
        return Sym(self.env, {(): other}) // self if other else 0

    def __rmod__(self, other):
        return other - (other // self) * self

    def ask(self, relation, other, answer):
        difference = self - other
        if isinstance(difference, int):  # decided by algebra: no guard
            return {"==": difference == 0, "<": difference < 0, "<=": difference <= 0}[relation]
        known = decided(relation, difference)
        if known is not None:
            return known
        asked = (relation, self, other, answer)
        text = f"{self} {relation} {other}"
        if (text, answer) not in self.env.guards:
            self.env.relations.append(asked)
        narrow(self.env, relation, difference, answer)
        return self.env.guard(text, answer)

    def __eq__(self, other):
        return isinstance(other, (int, Sym)) and self.ask("==", other, int(self) == int(other))

    def __lt__(self, other):
        return self.ask("<", other, int(self) < int(other))

    def __le__(self, other):
        return self.ask("<=", other, int(self) <= int(other))

    def __gt__(self, other):
        return not self <= other

    def __ge__(self, other):
        return not self < other

    def __bool__(self):
        return not self == 0


def sizes_in(value):
    """The symbolic sizes among a node's arguments, however deep."""
    if isinstance(value, Sym):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from sizes_in(v)


def names(x):
    """The symbols that a number is computed from; none for a plain one."""
    if isinstance(x, Float) and x.function is not None:
        return {n for a in x.arguments for n in names(a)}
    found = set()
    for product in x.terms if isinstance(x, Sym) else ():
        for name in product:
            parts = x.env.quotients.get(name)
            found.update({name} if parts is None else names(parts[0]) | names(parts[1]))
    return found


def divide(x, y):
    """The exact quotient where algebra shows one (each term divisible by the monomial y), else
    None.
    """
    divisor = terms(y)
    if len(divisor) != 1:
        return None
    ((names, c),) = divisor.items()
    out = {}
    for m, d in x.terms.items():
        rest = list(m)
        for n in names:
            if n not in rest:
                return None
            rest.remove(n)
        if d % c:
            return None
        out[tuple(rest)] = d // c
    return polynomial(x.env, out)


def quotient(name, values, env):
    top, bottom = env.quotients[name]
    at = lambda v: v.evaluate(values) if isinstance(v, Sym) else v
    return at(top) // at(bottom)


class Float(Sym):
    """A floating number that varies between calls: an input's `name`, or `function` of such numbers
    and of plain ones. It computes and does not compare: what asks for its value gets TypeError.
    """

    __slots__ = ("arguments", "function", "name")

    def __init__(self, env, name, hint=None, function=None, arguments=()):
        super().__init__(env, {(name,): 1})
        self.name, self.function, self.arguments = name, function, arguments
        if hint is not None:
            env.hints[name] = hint

    @classmethod
    def of(cls, function, *arguments):
        """`function` of numbers, of which at least one is a Float."""
        env = next(a.env for a in arguments if isinstance(a, Float))
        text = f"{function.__name__}({', '.join(map(str, arguments))})"
        return cls(env, text, None, function, arguments)

    @property
    def hint(self):
        return self.evaluate(self.env.hints)

    def evaluate(self, values):
        if self.function is None:
            return values[self.name]
        at = lambda v: v.evaluate(values) if isinstance(v, Sym) else v
        return self.function(*map(at, self.arguments))

    def __str__(self):
        return self.name

    __repr__ = __str__

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Float) and self.name == other.name

    def refuse(self, *_):
        raise TypeError(f"the float {self.name} varies: its value is known in the run only")

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __int__ = __index__ = __float__ = refuse
    __round__ = __trunc__ = refuse

    def __neg__(self):
        return Float.of(operator.neg, self)

    def __pos__(self):
        return self

    def __abs__(self):
        return Float.of(operator.abs, self)


def float_slot(function):
    def forward(self, other):
        if not isinstance(other, (int, float, Sym)):
            return NotImplemented
        return Float.of(function, self, other)

    def backward(self, other):
        if not isinstance(other, (int, float, Sym)):
            return NotImplemented
        return Float.of(function, other, self)

    return forward, backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _forward, _backward = float_slot(getattr(operator, _name))
    setattr(Float, f"__{_name}__", _forward)
    setattr(Float, f"__r{_name}__", _backward)
