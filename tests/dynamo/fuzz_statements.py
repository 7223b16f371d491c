# ruff: noqa: E501, F541
"""Random statements: assignments, mutations, breaks, control flow. Each method emits one."""

from __future__ import annotations

from collections.abc import Callable

from .fuzz_expressions import Expressions


class Statements(Expressions):
    """Of `Program`."""

    budget: int
    loops: int
    inside: int
    fresh: Callable
    emit: Callable
    form: Callable

    def block(self, depth, scope, can_leave):
        for _ in range(self.r.randint(1, 3)):
            if self.statement(depth, scope, can_leave):
                return

    def branch(self, scope):
        return {k: list(v) for k, v in scope.items()}

    def statement(self, depth, scope, leave):
        self.budget -= 1
        simple = [
            self.assign, self.assign, self.assign_int, self.augment, self.listing, self.mapping, self.boxing,
            self.unpacking, self.in_place, self.brk, self.walrus, self.globe, self.generator, self.assertion, self.oddity, self.oddity,
        ]  # fmt: skip
        compound = [
            self.if_,
            self.for_,
            self.while_,
            self.try_,
            self.with_,
            self.function,
            self.match,
            self.no_grad,
        ]
        if self.budget > 0 and depth < 5 and self.r.random() < 0.5:
            return self.pick(*compound)(depth, scope, leave)
        if leave and self.r.random() < 0.08:
            return self.leaving(depth, scope, leave)
        if depth < 7 and self.r.random() < 0.5:
            return self.form(depth, scope)
        return self.pick(*simple)(depth, scope)

    def assign(self, depth, scope):
        name = self.pick(self.fresh("t"), *scope["t"])
        self.emit(depth, f"{name} = {self.tensor(scope)}")
        if name not in scope["t"]:
            scope["t"].append(name)

    def assign_int(self, depth, scope):
        name = self.fresh("i")
        self.emit(depth, f"{name} = {self.integer(scope)}")
        scope["i"].append(name)

    def augment(self, depth, scope):
        name = self.pick(*scope["t"])
        op = self.pick("+=", "*=", "-=")
        self.emit(depth, f"{name} {op} {self.pick('1', '2.0', self.pick(*scope['t']))}")

    def in_place(self, depth, scope):
        t = self.pick(*scope["t"])
        self.emit(
            depth,
            self.pick(
                f"{t}.add_({self.integer(scope)})",
                f"{t}[0] = {self.integer(scope)}",
                f"{t}.mul_(0.5)",
                f"{t}.zero_()",
            ),
        )

    def listing(self, depth, scope):
        name = self.pick(*scope["l"])
        self.emit(depth, self.pick(
            f"{name}.append({self.value(scope)})", f"{name}.insert(0, {self.integer(scope)})",
            f"{name}[-1:] = [{self.value(scope)}]", f"{name} += [{self.value(scope)}]", f"{name}.extend(q for q in range(2))",
            f"{name} = [*{name}, {self.integer(scope)}]", f"del {name}[:1]", f"log.append({self.value(scope)})",
            f"{name}.reverse()", f"{name}.pop() if {name} else None", f"{name}.append({name}[0] if {name} else None)",
        ))  # fmt: skip

    def mapping(self, depth, scope):
        name = self.pick(*scope["d"])
        self.emit(depth, self.pick(
            f"{name}['k{self.r.randint(0, 2)}'] = {self.value(scope)}", f"{name}.pop('p', None)", f"{name}.setdefault('q', []).append(1)",
            f"{name}.update(p={self.integer(scope)})", f"{name} = dict({name}, z=1)", f"log.append(list({name}))",
            f"{name}['p'] = {self.integer(scope)}", f"log.append(sorted({name}))", f"log.append({name}['k0'])" if self.r.random() < 0.2 else "pass",
        ))  # fmt: skip

    def boxing(self, depth, scope):
        self.emit(depth, self.pick(
            f"box.value = {self.tensor(scope)}", f"box.bump({self.integer(scope)})", f"box.extra = {self.value(scope)}",
            "log.append(len(box))", "log.append({box: 1}[box])", f"log.append(getattr(box, 'extra', {self.integer(scope)}))",
            "log.append(hasattr(box, 'extra'))",
        ))  # fmt: skip

    def unpacking(self, depth, scope):
        a, b = self.fresh("t"), self.fresh("i")
        self.emit(depth, self.pick(
            f"{a}, {b} = {self.tensor(scope)}, {self.integer(scope)}",
            f"({a}, *_), {b} = [{self.tensor(scope)}, 1, 2], {self.integer(scope)}",
            f"{b}, {a} = Point({self.integer(scope)}, {self.tensor(scope)})",
        ))  # fmt: skip
        scope["t"].append(a)
        scope["i"].append(b)

    def brk(self, depth, scope):
        t = self.pick(*scope["t"])
        self.emit(depth, self.pick(
            f"print('p', {self.integer(scope)})", f"log.append({t}.sum().item())", f"{t} = noisy({t}, {self.integer(scope)})",
            f"log.append({t}.tolist())", f"print({t}.sum().item() > 1)", f"{t} = {t} * (2 if {t}.sum() > 3 else 1)",
            f"log.append([q.item() for q in {t}.reshape(-1)][:2])", "dynamo_break()", f"log.append(str({t}.dtype))",
        ))  # fmt: skip

    def walrus(self, depth, scope):
        name = self.fresh("i")
        self.emit(depth, f"log.append(({name} := {self.integer(scope)}) + 1)")
        scope["i"].append(name)

    def globe(self, depth, scope):
        if not self.inside:
            self.emit(depth, self.pick("LEVEL += 1", f"LEVEL = {self.integer(scope)} % 5"))
        else:
            self.emit(depth, "pass")

    def generator(self, depth, scope):
        t = self.tensor(scope)
        g = self.fresh("g")
        self.emit(depth, self.pick(
            f"log.extend(count({self.integer(scope)} % 3, {t}))", f"log.append(sum(count(2, {t})))",
            f"{g} = count(3, {t}); log.append(next({g})); log.append({g}.send(2))",
            f"log.append([q for q in count(2, {t})])", f"log.append(max((q for q in (1, {self.integer(scope)})), default=0))",
            f"log.extend(itertools.islice(count(5, {t}), 2))", f"log.append(dict(enumerate(count(2, {t}))))",
        ))  # fmt: skip

    def oddity(self, depth, scope):
        """Objects that outlive the statement: closures, iterators, aliases, exceptions, classes."""
        t, i, l, d = (
            self.tensor(scope),
            self.integer(scope),
            self.pick(*scope["l"]),
            self.pick(*scope["d"]),
        )
        a, b = self.fresh("q"), self.fresh("q")
        self.emit(
            depth,
            self.pick(
                f"{a} = [lambda k={i}, j=j: k + j for j in range(2)]; log.append({a}[0]() + {a}[1](1))",
                f"{a} = iter([1, {i}, 3]); log.append(next({a})); print('it'); log.append(list({a}))",
                f"{a} = zip([1, 2], 'ab'); next({a}); print('zip'); log.append(list({a}))",
                f"{a} = (v for v in [1, {i}]); log.append(next({a})); print('gen'); log.append(list({a}))",
                f"{a} = {l}; {a}.append({i}); print(len({l})); log.append({a} is {l})",
                f"{a} = {{'self': {l}}}; {d}['more'] = {a}; print('d'); log.append({d}['more']['self'] is {l})",
                f"{a} = [1, 2]; {b} = [{a}, {a}]; print('al'); {a}.append(3); log.append(({b}, {b}[0] is {b}[1]))",
                f"{a} = Box({t}); {b} = {a}.bump; print('bm'); {b}({i}); log.append({a}.k)",
                f"{a} = functools.partial(helper, {t}); print('pt'); log.append({a}({i}))",
                f"{a} = Pair({t}, {i}); {a}.right = [{a}.right]; print('pr'); log.append({a}.right)",
                f"{a} = collections.OrderedDict(z=1, y={i}); {a}.move_to_end('z'); log.append(list({a}.items()))",
                f"{a} = collections.deque([1, 2, {i}], maxlen=2); {a}.append(9); print('dq'); log.append(list({a}))",
                f"{a} = {{1, 2, {i}}}; {a}.add(7); print('set'); log.append(sorted({a}))",
                f"{a} = collections.defaultdict(list); {a}['k'].append({t}); print('dd'); log.append({a})",
                f"log.append(sorted([(2, 'b'), (1, {i})], key=lambda v: v[0]))",
                f"log.append([{a} + {b} for {a} in range(2) for {b} in (1, {i}) if {a} != {b}])",
                f"log.append({{**{d}, 'p': 1}} == {d}); log.append([*map(lambda v: v * 2, (1, {i}))])",
                f"{a} = max([Box({t}, 1), Box({t}, 2)], key=len); log.append({a}.k)",
                f"{a}, {b} = {l}, {d}; del {a}; log.append(list({b}))",
                f"log.append((lambda *r, **kw: (len(r), sorted(kw)))(*{l}, **{{'a': 1}}))",
                f"log.append([next((v for v in {l} if v == {i}), 'none'), any(v == 1 for v in [{i}])])",
                f"Box.total = {i}; log.append(box.total)",
                f"{a} = slice(0, {i} % 3); log.append({t}[{a}]); log.append([1, 2, 3][{a}])",
                f"{a} = enumerate(['p', 'q'], {i}); log.append(next({a})); print('en'); log.append(dict({a}))",
                f"{a} = reversed([1, {i}]); print('rv'); log.append(list({a}))",
                f"{a} = {d}.items(); print('iv'); log.append(len({a}))",
                f"log.append(rl.is_grad_enabled()); log.append((x is y, {l} is log))",
                f"{a} = ValueError({i}); log.append(isinstance({a}, Exception)); log.append({a}.args)",
                f"{a} = range({i} % 4); print({a}); log.append(list({a}))",
                f"log.append(str({i}).zfill(3) + repr([{i}]) + '{{}}-{{}}'.format({i}, 'e'))",
            ),
        )

    def assertion(self, depth, scope):
        self.emit(depth, f"log.append(('ok', {self.test(scope)}))")

    def leaving(self, depth, scope, leave):
        options = ["raise ValueError('v')", f"return {self.tensor(scope)}, 'early'"]
        if self.loops:
            options += ["break", "continue"]
        self.emit(depth, self.pick(*options))
        return True

    def if_(self, depth, scope, leave):
        condition = (
            self.test(scope)
            if self.r.random() < 0.85
            else f"{self.pick(*scope['t'])}.sum() > {self.integer(scope)}"
        )
        self.emit(depth, f"if {condition}:")
        self.block(depth + 1, self.branch(scope), leave)
        if self.r.random() < 0.3:
            self.emit(depth, f"elif {self.test(scope)}:")
            self.block(depth + 1, self.branch(scope), leave)
        if self.r.random() < 0.5:
            self.emit(depth, "else:")
            self.block(depth + 1, self.branch(scope), leave)

    def for_(self, depth, scope, leave):
        inner = self.branch(scope)
        i, t = self.fresh("i"), self.fresh("t")
        kind = self.r.randint(0, 5)
        if kind == 0:
            head = f"for {i} in range({self.r.randint(1, 3)}):"
            inner["i"].append(i)
        elif kind == 1:
            head = f"for {i}, {t} in enumerate([{self.tensor(scope)}, {self.tensor(scope)}]):"
            inner["i"].append(i)
            inner["t"].append(t)
        elif kind == 2:
            head = (
                f"for {t}, {i} in zip(({self.tensor(scope)}, {self.pick(*scope['t'])}), [1, 2, 3]):"
            )
            inner["i"].append(i)
            inner["t"].append(t)
        elif kind == 3:
            head = f"for {self.fresh('k')}, {i} in {{'a': 1, 'b': {self.integer(scope)}}}.items():"
            inner["i"].append(i)
        elif kind == 4:
            head = f"for {t} in count(2, {self.tensor(scope)}):"
            inner["t"].append(t)
        else:
            head = f"for {i} in [1, {self.integer(scope)}]:"
            inner["i"].append(i)
        self.emit(depth, head)
        self.loops += 1
        self.block(depth + 1, inner, leave)
        self.loops -= 1
        if self.r.random() < 0.2:
            self.emit(depth, "else:")
            self.block(depth + 1, self.branch(scope), leave)

    def while_(self, depth, scope, leave):
        i = self.fresh("w")
        self.emit(depth, f"{i} = 0")
        self.emit(depth, f"while {i} < {self.r.randint(1, 3)}:")
        self.emit(depth + 1, f"{i} += 1")
        self.loops += 1
        inner = self.branch(scope)
        inner["i"].append(i)
        self.block(depth + 1, inner, leave)
        self.loops -= 1

    def try_(self, depth, scope, leave):
        self.emit(depth, "try:")
        self.block(depth + 1, self.branch(scope), leave)
        if self.r.random() < 0.5:
            self.emit(depth + 1, self.pick(
                "raise KeyError('k')", "raise ValueError(len(log))", "log.append([][1])", "log.append({}['z'])",
                f"log.append({self.pick(*scope['t'])} + rl.ones(11))", "int('x')", "None.field",
                f"if {self.test(scope)}: raise TypeError('maybe')",
            ))  # fmt: skip
        kind = self.r.randint(0, 3)
        if kind != 3:
            self.emit(
                depth,
                self.pick(
                    "except ValueError as e:",
                    "except (KeyError, IndexError, RuntimeError) as e:",
                    "except Exception as e:",
                ),
            )
            self.emit(
                depth + 1,
                self.pick(
                    "log.append(type(e).__name__)", "log.append(e.args)", "log.append(str(e))"
                ),
            )
            self.block(depth + 1, self.branch(scope), leave)
            if self.r.random() < 0.1:
                self.emit(depth + 1, "raise")
            if self.r.random() < 0.25:
                self.emit(depth, "else:")
                self.block(depth + 1, self.branch(scope), leave)
        if kind >= 2:
            self.emit(depth, "finally:")
            self.emit(depth + 1, "log.append('finally')")
            self.block(depth + 1, self.branch(scope), False)

    def with_(self, depth, scope, leave):
        self.emit(depth, "with " + self.pick(
            f"managed(log, {self.integer(scope)}):", f"Guarded(log, {self.pick('True', 'False')}):",
            "managed(log, 'a'), Guarded(log, True) as g0:", "contextlib.suppress(ValueError):", "contextlib.nullcontext():",
        ))  # fmt: skip
        self.block(depth + 1, self.branch(scope), leave)
        if self.r.random() < 0.15:
            self.emit(depth + 1, "raise ValueError('in with')")

    def no_grad(self, depth, scope, leave):
        self.emit(
            depth,
            self.pick(
                "with rl.no_grad():", "with rl.enable_grad():", "with rl.set_grad_enabled(False):"
            ),
        )
        self.block(depth + 1, self.branch(scope), leave)
        self.emit(
            depth + 1,
            f"log.append((rl.is_grad_enabled(), ({self.pick(*scope['t'])} * w).requires_grad))",
        )

    def function(self, depth, scope, leave):
        name, a = self.fresh("f"), self.fresh("t")
        inner = self.branch(scope)
        closed = [i for i in scope["i"] if i.startswith("i")]
        self.emit(depth, f"def {name}({a}, k=1, *, z=2):")
        if closed and self.r.random() < 0.4 and not self.inside:
            shared = self.pick(*closed)
            self.emit(depth + 1, f"nonlocal {shared}")
            self.emit(depth + 1, f"{shared} = {shared} + k")
        inner = {**inner, "t": [a, "x"], "i": ["k", "z", *closed[:1]]}
        loops, self.loops = self.loops, 0
        self.inside += 1
        self.block(depth + 1, inner, False)
        self.inside -= 1
        self.loops = loops
        self.emit(depth + 1, f"return {a} * k")
        r = self.fresh("t")
        self.emit(
            depth, f"{r} = {name}({self.tensor(scope)}" + self.pick(")", ", 2)", ", z=3, k=0)")
        )
        scope["t"].append(r)

    def match(self, depth, scope, leave):
        self.emit(depth, f"match {self.value(scope)}:")
        cases = [
            "case 0 | 1:",
            "case str(s):",
            "case [q, *_]:",
            "case {'k': q}:",
            "case Pair(left=q):",
            "case Point(u, v) if v is not None:",
            "case None:",
        ]
        for c in self.r.sample(cases, 2):
            self.emit(depth + 1, c)
            self.block(depth + 2, self.branch(scope), leave)
        self.emit(depth + 1, "case _:")
        self.block(depth + 2, self.branch(scope), leave)
