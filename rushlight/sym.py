"""Symbolic integers: polynomials in named sizes, each with the value it was first seen with (its
hint).

Takes and returns ints where nothing is unknown. Equal polynomials are equal without a question; any
other comparison is answered from the hints and recorded in the environment, so that it can become a
guard.
"""


class ShapeEnv:
    """The sizes of one capture: name -> hint, and the guards that its comparisons left."""

    def __init__(self):
        self.hints = {}
        self.guards = []  # (text, answer), in the order asked, without repetition
        self.quotients = {}  # name of an opaque quotient -> (dividend, divisor)
        self.relations = []  # the same as (relation, left, right, answer)

    def size(self, name, hint):
        self.hints[name] = int(hint)
        return Sym(self, {(name,): 1})

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
        return int(self)

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
        asked = (relation, self, other, answer)
        text = f"{self} {relation} {other}"
        if (text, answer) not in self.env.guards:
            self.env.relations.append(asked)
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
