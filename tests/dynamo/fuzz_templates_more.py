# ruff: noqa: E501
"""Templates of random programs: special methods, assignments of every form, tensors as values.
`$` and a letter mark the holes (fuzz_forms.py)."""

MORE = """
$A = $B = [$i]
$A.append($t)
$C = {'k': $t, 'n': [1, $i]}
$C['k'] += 1
$BREAK
$C['n'][0] *= $i
box.k += $i
box.value -= 0.5
$A[0], $A[-1] = $A[-1], $A[0]
log.append(($A is $B, $C, box.k, box.value, $A))
----
($A, ($B, *$C)) = $t, ('p', $i, [3])
$BREAK
log.append(($A, $B, $C))
[$A, *_], $B = [1, $i, 2], {**$D}
del $C
log.append(($A, $B, [*range($i % 3), *'ab'], (*$L, *$L)[:3]))
----
class $A:
    items = [k * 2 for k in range(3)]
    for j0 in range(2):
        items = items + [j0]
    label: str = 'cls'
    def __init__(self, v): self.v = v
    def __repr__(self): return f'A({self.label})'
    def get(self, k=items[1]): return self.v * k
$B = $A($t)
log.append(($B.get(), $B.get($i), repr($B), $A.items, $A.label))
$BREAK
log.append($A.__name__[:0])
----
$A = Temp($i)
log.append(($A < Temp(3), $A >= Temp($i), sorted([Temp(2), $A, Temp(-1)], key=None)[0].v, max($A, Temp(1)).v))
$BREAK
log.append((3 + $A, $A + 3, $A * $t, -$A, abs($A), [10, 20, 30, 40][Temp($i % 4)], f'{$A:>4}', f'{$A}', bool(Temp(0)), hash($A) == hash(Temp($i))))
----
$A = Sub($t, k=$i)
$BREAK
log.append(($A.total, $A.twice, $A.name, Sub.total, $A.describe(sep='-'), callable($A), $A(1, z=$i)))
$A.total = 5
Sub.total = $i
log.append(($A.total, Sub.total, Plain.total, isinstance($A, (int, Plain)), issubclass(Sub, Plain), type($A) is Sub))
----
$A = Slots($i)
$A.b = $t
$BREAK
log.append(($A.a, $A.b, hasattr($A, 'c'), getattr($A, 'c', 'none')))
try:
    $A.z = 1
except AttributeError as e:
    log.append(type(e).__name__)
----
def $A(n0):
    yield n0
    if n0 > 0:
        yield from $A(n0 - 1)
        yield -n0
log.append([v for v in $A(2)])
for $B in $A($i % 3):
    $BREAK
    log.append($B)
----
def $A():
    with managed(log, 'in gen') as m0:
        for k in range(3):
            yield (m0, k, $t)
for $B in $A():
    log.append($B[1])
    $BREAK
    if $B[1] == $i % 3: break
log.append('after')
----
def $A(v):
    while v > 0:
        v -= 1
        try:
            if v == 1: break
            if v == 3: continue
            log.append(v)
        finally:
            $BREAK
            log.append(('w', v))
    else:
        return 'ran out'
    return 'broke'
log.append($A($i % 6))
----
def $A(v):
    try:
        if v > 1: raise Custom('a', v)
        return 'ok'
    except Custom as e:
        $BREAK
        return ('custom', e.code)
    else:
        return 'never'
    finally:
        log.append('done')
log.append([$A($i), $A(2)])
----
$A = []
for $B in range(3):
    try:
        try:
            $A.append(10 // $B)
            $BREAK
        except ZeroDivisionError as e:
            $A.append(str(e))
            raise ValueError('outer') from e
    except ValueError as e:
        $A.append((str(e), type(e.__cause__).__name__))
        continue
    $A.append('end')
log.append($A)
----
try:
    with Guarded(log, False):
        with Guarded(log, True):
            $BREAK
            raise KeyError('passes the inner')
except KeyError as e:
    log.append(e.args)
----
log.append([v for v in (1, $i, 3) if v not in (3,)] + [(lambda: v)() for v in range(2)])
log.append({k: v for k, v in zip('abc', [$i, $t, 1]) if k != 'b'} | {'b': {1, 1, $i} == {1, $i}})
log.append(sum(1 for v in $L if v is not None) + len([None for _ in range($i % 3)]))
----
$A = itertools.cycle('ab')
log.append([next($A) for _ in range(3)])
$B, $C = itertools.tee([1, $i])
log.append((list($B), next($C)))
$BREAK
log.append((next($A), list($C), list(itertools.islice('abcdef', 1, None, 2)), list(itertools.zip_longest([1], 'xy', fillvalue=$i))))
----
$A = Point($i, $t)
$B = $A._replace(u=7)
$BREAK
log.append(($A.u, $B, $A._asdict()['v'], $B[0], len($A), $A._fields, Point(*[1, 2]) == (1, 2), Point(1, 2) < (1, 3)))
----
$A = [(2, 'b'), ($i, 'a'), (2, 'a')]
$A.sort(key=lambda p: p[0])
$BREAK
log.append(($A, sorted($A, key=lambda p: (p[1], -p[0]), reverse=True), min($A), $A.index((2, 'b')), (2, 'a') in $A))
----
$A = any((log.append(v), v > 1)[1] for v in [0, $i, 2])
$B = all((log.append(v), v)[1] for v in [1, $i, 0, 5])
$BREAK
log.append(($A, $B, any([$L]), all([$L, 1]), bool($L), not $D))
----
log.append(((3 > $i) and 'yes' or 'no', $i or $t, None is None, 1 < $i < 5 != 2, (0.1 + 0.2) == 0.3, 7 // -2, -7 % 4, round(2.5), round(-1.567, 1), int(-2.7), 10 ** -1))
log.append((str($i) * 2, ord('a') + $i, chr(97 + $i % 5), bytes([1, 2])[0], b'ab' + b'c', 'abc'[$i % 3], 'a' < 'b', (1, 'x') == (1, 'x'), [1] < [1, 0]))
----
$A = $t
log.append(($A.shape == (3,), tuple($A.shape), len($A), $A.size(-1), $A.numel(), $A.dim() == 1, [*$A.shape]))
$B, *$C = $A.reshape(-1)
$BREAK
log.append(($B, len($C), $A.unsqueeze(0).shape, $A[None].squeeze(0).shape))
----
$A, $B = rl.cat([$t.reshape(-1), $t.reshape(-1)])[:4].split(2)
$BREAK
log.append(($A, $B, [v * 2 for v in rl.stack([$A, $B]).unbind(0)], rl.where($A > $B, $A, $B)))
----
$A = [$t, $t]
$B = {'t': $A[0]}
$A[0] += 1
$BREAK
$B['t'] *= 2
log.append(($A, $B, $A[0] is $B['t']))
for $C in $A:
    $C -= 0.5
log.append($A)
----
$A = rl.zeros(2, 3)
for $B in range(2):
    $A[$B] = $B + $i
    $BREAK
    $A[:, $B] += 1
$A[0, 1:] = rl.tensor([5.0, 6.0])
log.append(($A, $A.sum(), $A.t()[0], $A[1, -1]))
----
$A = $t.clone()
$B = $A.detach()
$B.zero_()
$BREAK
$A.fill_($i)
$A.masked_fill_($A > 2, 0.5)
log.append(($A, $B, rl.add($A, 1, out=$B) is $B, $A))
----
$A = rl.arange(4)
$A[rl.tensor([0, 2])] = $i
$BREAK
$A[$A > 2] = 9
log.append(($A, $A[[1, 3]], $A[rl.tensor([True, False, True, False])], $A.tolist()[1:]))
----
$A = rl.ones(3)
$A.data = $t.detach().reshape(-1)[:3] * 2
$BREAK
$A.add_(1)
log.append(($A, $A.requires_grad))
----
$A = {x: 'x', 'n': $i}
log.append(($A[x], x in $A, len($A)))
$BREAK
log.append(([v for k, v in $A.items() if isinstance(k, str)], $A.get(y, 'absent') if x is not y else 'same'))
----
def $A(*args, sep='-', **kw):
    return sep.join([str(len(args))] + sorted(kw)), args[-1:] + tuple(kw.values())
$B = functools.partial($A, $i, sep='+', a=$t)
$BREAK
log.append(($B(2, b=3), $A(*$L, **{'q': 1}), (lambda *a, k=$i, **kw: (a, k, kw))(1, k=2, z=3)))
----
LEVEL0 = [LEVEL]
def $A():
    LEVEL0.append(LEVEL + $i)
    $BREAK
    return LEVEL0
log.append($A())
log.append($A()[-1])
----
$A = Registry()
@$A.add('one')
def $B(v):
    return v + $i
$A.add('two')(lambda v: v * 2)
$BREAK
log.append([(k, f($t)) for k, f in $A.items.items()] + [$A.names(), 'one' in $A])
----
$A = Chain($t).plus($i).times(2)
$BREAK
with $A as v0:
    log.append(v0.value)
log.append($A.value)
----
log.append(([v[:9] for v in map(str, $L)][:5], [*map(len, $D)], ','.join(map(repr, $D.values()))[:5], [*filter(None, $L)], len([*map(bool, $L)])))
$BREAK
log.append(([*map(type, $L)] == [type(v) for v in $L], $i in $D.values(), [str(kv)[:4] for kv in zip($L, $D)], max(map(str, $L), default='')[:9]))
log.append(sum(v for v in map(int, [*filter(lambda v: isinstance(v, int), $L)])) + sum({'a': 1, 'b': $i}.values()))
----
def $B(v=1):
    $BREAK
    return v
def $A(*a, **k):
    return a, k
log.append($A(*$L, $B(), *[$t, $i], $B(2), p=$B(3), **$D | {'p0': $B(4)}) if 'p' not in $D else $A(*$L, $B(), $t, **$D))
log.append(([*$L, $B(), *$L], (*$L, $B($t)), {**$D, 'p': $B(), **{'r': $B(5)}}, {*[1, $i], $B(7)} == 0, [$A(v, $B(v)) for v in range($i % 3)]))
try:
    log.append($A(**{'p': $B()}, **$D))
except TypeError as e:
    log.append(str(e)[-20:])
----
class $A(Left):
    def __init__(self, v):
        $BREAK
        super().__init__(v)
    def who(self, k=1):
        $BREAK
        s0 = super()
        for j in range($i % 3):
            k += len(super().who())
            $BREAK
        return s0.who(), k, (lambda: self.v)()
    @classmethod
    def make(cls, v):
        $BREAK
        return super().make(v)
$B = $A($t)
log.append(($B.who($i), $B.v, type($A.make($i)) is $A))
----
def $A(a0, *r0, k0=$i):
    b0 = a0 * 2
    $BREAK
    log.append((sorted(locals()), eval('k0 + 1'), len(dir())))
    return b0
log.append($A($t, 1))
----
def $A():
    try:
        raise
    except (RuntimeError, KeyError) as e:
        return type(e).__name__
log.append($A())
try:
    raise KeyError($i)
except KeyError:
    log.append($A())
    $BREAK
    log.append($A())
"""
