# ruff: noqa: E501
"""Templates of random programs: calls, generators, match, exceptions, `with`, loops over iterators.
`$` and a letter mark the holes (fuzz_forms.py)."""

FLOW = """
$A = 0
def $B(k):
    nonlocal $A
    def $C(j):
        nonlocal $A
        $A += j
        return $A
    $BREAK
    return $C(k) + $C(1)
log.append(($B($i), $A))
$BREAK
log.append(($B(2), $A))
----
def $A(start):
    total = start
    def add(v):
        nonlocal total
        total = total + v
        return total
    def get(): return total
    return add, get
$B, $C = $A($t)
$B($i)
$BREAK
$B(2)
log.append($C())
----
$A = [lambda v, k=k: v * k for k in range(3)] + [lambda v: v + k0 for k0 in [$i]]
$BREAK
log.append([f($t) for f in $A])
----
def $A(v, acc=[]):
    acc.append(v)
    return len(acc), acc
log.append($A($i))
$BREAK
log.append($A($t))
----
def $A(p, /, q=2, *rest, r, s=4, **named):
    return p * q + r + s + sum(rest) + len(named), sorted(named)
log.append($A($t, *[1, $i], r=$i, **{'z': 1, 'y': 2}))
log.append($A(*[$t], r=1, **{**{'s': $i}, 'w': 0}))
try:
    log.append($A($t, 1))
except TypeError as e:
    log.append(str(e).partition('(')[2])
----
def $A(n):
    got = []
    try:
        for k in range(n):
            got.append((yield k + $i))
    except ValueError as e:
        got.append(str(e))
        yield 'caught'
    finally:
        got.append('end')
        log.append(got)
    return got
$B = $A(3)
log.append(next($B))
log.append($B.send($t))
$BREAK
log.append($B.send('s'))
try:
    log.append($B.throw(ValueError('in')))
    next($B)
except StopIteration as e:
    log.append(e.value)
----
def $A(n):
    r = yield from count(n, $t)
    log.append(('inner gave', r))
    yield r
for $B in $A(2):
    log.append($B)
    $BREAK
----
def $A():
    try:
        yield 1
        yield $t
    finally:
        log.append('closed')
$B = $A()
log.append(next($B))
$B.close()
log.append(list($B))
----
def $A(v):
    for j in range(3):
        try:
            if j == v:
                return ('returned', j)
            log.append(j)
        finally:
            log.append(('f', j))
            $BREAK
    return None
log.append($A($i % 4))
----
for $A in range(3):
    try:
        if $A == 1: continue
        if $c: break
        $LOOP
    finally:
        log.append(('finally', $A))
else:
    log.append('else')
----
def $A():
    try:
        raise KeyError('lost')
    finally:
        return $t
log.append($A())
----
$A = 0
while True:
    $A += 1
    try:
        if $A > 2: break
        $BREAK
        $LOOP
    except (ValueError, KeyError):
        continue
    finally:
        log.append($A)
----
for $A in range(2):
    for $B in [$i, 1, $A]:
        if $B == $A: break
        log.append(($A, $B))
    else:
        continue
    log.append('inner broke')
    $BREAK
----
match [$i, ($i, 'x'), {'k': $t, 'm': 2}]:
    case [int(a0), (int(b0), str(c0)), {'k': k0, **rest0}] if a0 == b0:
        log.append(('same', a0, k0, rest0))
    case [_, (b0, ('x' | 'y') as c0), {'k': k0}]:
        log.append((b0, c0, k0))
    case _:
        log.append('none')
----
for $A in (Shape('sq', $i), Circle($t), Rect($t, $i), Rect(h=1, w=2), Shape('?', 0), 7):
    match $A:
        case Circle(r=r0):
            log.append(('circle', r0))
        case Rect(w0, 2 | 3 as h0):
            log.append(('rect2', w0, h0))
        case Rect(w=w0):
            log.append(('rect', w0))
        case Shape('sq', size) if size > 1:
            log.append(('shape', size))
        case Shape(name=n0):
            log.append(n0)
        case other:
            log.append(other)
    $BREAK
----
match $L:
    case []:
        log.append('empty')
    case [first0]:
        log.append(('one', first0))
    case [first0, *_, last0]:
        log.append(('ends', first0, last0))
----
$A = []
try:
    $A.append($i)
    box.k = 50 + $i
    $T.add_(1)
    if $c: raise Custom('why', $i)
    $BREAK
    $A.append({}['no'])
except Custom as e:
    log.append((e.code, str(e), $A))
except KeyError as e:
    log.append((e.args, $A, box.k))
----
try:
    try:
        $L.append(1)
        raise ValueError('first')
    except ValueError as e:
        $BREAK
        raise Custom('second', $i) from e
    finally:
        log.append('cleanup')
except Custom as e:
    log.append((type(e.__cause__).__name__, e.__context__ is e.__cause__, e.code))
----
try:
    try:
        [][$i]
    except IndexError:
        $D['deep'] = $i
        {}['k']
except KeyError as e:
    log.append((type(e.__context__).__name__, e.__suppress_context__))
----
def $A(v):
    $L.append(v)
    if v > 1:
        raise ValueError(v)
    $BREAK
    return v
for $B in range(3):
    try:
        log.append($A($B))
    except ValueError as e:
        log.append(e.args[0])
    else:
        log.append('fine')
----
try:
    assert $c, ('told', $i)
    log.append('held')
except AssertionError as e:
    log.append(e.args)
----
with contextlib.ExitStack() as $A:
    $A.callback(log.append, 'called')
    $B = $A.enter_context(managed(log, 'es'))
    $BREAK
    log.append($B)
----
with Guarded(log, True), managed(log, $i) as $A:
    log.append($A)
    if $c: raise ValueError('inside')
    $BREAK
    log.append('not raised')
----
@contextlib.contextmanager
def $A(v):
    log.append(('enter', v))
    try:
        yield v + 1
    except KeyError as e:
        log.append(('swallowed', e.args))
with $A($i) as $B:
    log.append($B)
    if $c: raise KeyError($B)
    $LOOPLESS
----
$A = iter([$i, 2, $t, 4, 5])
for $B in $A:
    log.append($B)
    $BREAK
    if next($A, None) is None: break
log.append(list($A))
----
for $A, ($B, $C) in enumerate(zip([$t, $t, 3], 'abcd'), $i):
    log.append(($A, $C))
    $BREAK
    log.append($B)
----
for $A in range($i % 4 + 1):
    $T = $T + $A
    $BREAK
    $T = $T * 1.5
log.append($T)
----
$A = {'a': $t, 'b': $i, 'c': [1]}
for $B, $C in $A.items():
    $BREAK
    log.append(($B, $C))
    $A[$B] = 0
log.append($A)
----
$A = [1, 2, 3]
for $B in $A:
    if len($A) < 6: $A.append($B + $i)
    $BREAK
log.append($A)
----
for $A in reversed([$t, $i, 3]):
    $BREAK
    log.append($A)
for $A in map(lambda v: v * 2, [1, $i, $t]):
    log.append($A)
    $BREAK
for $A in filter(None, [0, $i, 'x', $L]):
    log.append($A)
    $BREAK
----
$A = map(lambda v: (log.append(v), v + 1)[1], [1, $i])
log.append('lazy')
log.append(next($A))
$BREAK
log.append(list($A))
log.append(list(itertools.chain.from_iterable([[1], [$i]])) + list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])))
log.append([(k, list(g)) for k, g in itertools.groupby([1, 1, $i, 2])] + list(itertools.accumulate([1, $i, 3], operator.mul)))
----
try:
    log.append(list(zip([1, 2], [$i], strict=True)))
except ValueError as e:
    log.append(str(e))
log.append([any(v > 2 for v in [$i]), all([]), min([3, $i], key=lambda v: -v), sum([[1], [$i]], [])])
"""
