# ruff: noqa: E501
"""Templates of random programs: classes, containers, text, numbers, tensors in place, the tape.
`$` and a letter mark the holes (fuzz_forms.py)."""

OBJECTS = """
$A = Rect($i, $t)
$B = dataclasses.replace($A, w=$i)
$BREAK
log.append(($A.area(), $B.area(), $A.w == $B.w, $A.tags is $B.tags))
$A.tags.append('a')
log.append((dataclasses.fields($A)[0].name, $B.tags))
----
$A = sorted([Version(2, $i % 3), Version(1, 5), Version($i % 3, 0)])
$BREAK
log.append([(v.major, v.minor) for v in $A] + [Version(1, 1) == Version(1, 1), hash(Version(1, 2)) == hash((1, 2))])
try:
    $A[0].major = 3
except dataclasses.FrozenInstanceError as e:
    log.append(str(e))
----
log.append([m.name for m in Level if m > $i] + [Level.HIGH + 1, Level(1).label, Level.LOW < Level.HIGH])
$A = Mode.READ | Mode.WRITE
$BREAK
log.append([Mode.READ in $A, bool($A & Mode.EXEC), ($A ^ Mode.READ) is Mode.WRITE, Color['RED'].value])
----
$A = Thermo($i)
$A.celsius = $i + 1
$BREAK
$A.celsius += 2
log.append(($A.celsius, $A.fahrenheit, $A.log, $A.slow is $A.slow))
try:
    $A.celsius = -300
except ValueError as e:
    log.append((str(e), $A.log))
del $A.celsius
log.append(hasattr($A, 'celsius'))
----
$A = Proxy({'a': $i, 'b': $t})
log.append(($A.a, 'b' in $A, len($A), sorted($A), $A['a'], $A(3)))
$A.c = $i
$BREAK
log.append((list($A), $A.missing, $A.log, bool($A)))
del $A.a
$A['q'] = $t
log.append([list($A), $A == Proxy({}), $A != 3])
----
$A = Deep($t)
$BREAK
log.append(($A.who(), $A.base(), Deep.make($i).v, Deep.helper(2), isinstance($A, Left), [c.__name__ for c in type($A).__mro__]))
----
class $A(Left):
    extra = 3
    def who(self):
        return ('local', super().who(), self.extra)
$B = $A($t)
log.append($B.who())
----
$A = collections.defaultdict(lambda: [0], {'p': [$i]})
$A['q'].append($t)
$BREAK
$A['q'].append(2)
$A['r'][0] += $i
log.append((dict($A), 's' in $A, $A.get('s')))
----
$A = collections.deque([$i, 1, 2], maxlen=3)
$A.append($t)
$BREAK
$A.rotate($i % 3)
$A.appendleft(0)
$A.extend([5, 6])
log.append((list($A), $A[0], len($A), $A.pop()))
----
$A = collections.OrderedDict([('a', $i), ('b', $t), ('c', 3)])
$A.move_to_end('a')
$BREAK
$A.move_to_end('c', last=False)
log.append((list($A), $A.popitem(last=False)))
$A['a'] = 1
log.append((list($A.items()), $A == {'b': 2, 'a': 1} if False else len($A)))
----
$A = collections.Counter if False else {}
for $B in 'abca':
    $A[$B] = $A.get($B, 0) + $i
    $BREAK
log.append(sorted($A.items(), key=lambda p: (-p[1], p[0])))
----
$A = [1, $i, $t]
$B = $A
$C = [$A, $B, [$A]]
$B[0] = 'changed'
$BREAK
$A += [4]
$A = $A + [5]
log.append(($C, $C[0] is $B, $A is $B, $C[2][0] is $C[1]))
----
def $A(v, w):
    v.append(len(w))
    $BREAK
    w[:1] = [$i]
    return v is w
log.append($A($L, $L))
log.append(($L, $A([1, 2], $L)))
----
$A = [[0] * 2 for _ in range(3)]
$A[1][0] = $i
$B = [[7]] * 2
$B[0].append($t)
$BREAK
$A[0], $A[2] = $A[2], $A[0]
$B[1][0] = 8
log.append(($A, $B))
----
$A = list(range(6))
$A[1:3] = [$i] * 3
del $A[::3]
$BREAK
$A[-1:0:-2] = list('abcdef')[: len($A[-1:0:-2])]
log.append(($A, $A[::-1], $A.index($A[-1]), [$i] * 2 + $A[:2]))
----
$A, $B = {1, 2, $i}, frozenset([2, 3])
$A |= {9}
$BREAK
$A ^= {1, 4}
$A -= {9}
log.append([sorted($A | $B), sorted($A & $B), sorted($A - $B), $A >= {2}, $B.isdisjoint($A), {2} < $B, sorted({v % 3 for v in $A})])
$A.discard(100)
$A.update([7], (8,))
log.append(sorted($A))
----
log.append(f"{$i:>4}|{$i!r:^5}|{'a' + 'b':*<6}|{$i + 0.5:.3f}|{$i:#x}|{[1, $i]}|{$i=}|{Color.RED.name:{8}}")
log.append('%s-%03d-%.2f' % ('a', $i, $i / 3) + '{0}{1[k]}{0:>3}'.format($i, {'k': 2}))
----
$A = [y0 for v in range(4) if (y0 := v + $i) % 2]
while ($B := len($A)) > 1:
    $A.pop()
    $BREAK
log.append(($A, $B, y0 if $A else None))
----
log.append([[a0 + b0 for a0 in range(b0)] for b0 in range($i % 4)])
log.append({k0: {j0: k0 + j0 for j0 in 'xy'} for k0 in 'ab' if k0 != 'c'})
log.append([t0 * j0 for t0 in ($t, $t) for j0 in (1, $i) if j0 > 0])
log.append(sum(v * w0 for v, w0 in zip([1, $i], [$t, $t])))
----
$A = $t.clone()
$B = $A[1:]
$B += $i
$A[::2] *= 2
$BREAK
$C = $A.view(-1) if $A.is_contiguous() else $A
$C[0] = $i
$B.mul_(0.5)
log.append(($A, $B, $C, $B.shape[0]))
----
$A = $T.reshape(1, -1)
$A.add_(1)
$T[:2] = 5
$BREAK
$A[:, 0] -= 2
log.append(($A, $T))
----
$A = $t.clone().detach()
$A.unsqueeze_(0)
$B = $A
$B.transpose_(0, 1)
log.append(($A.shape, $B is $A))
$BREAK
$A.squeeze_()
$A.t_()
log.append(($A, $B.dim()))
----
$A = $t.to(rl.int64)
log.append(($A, $A.dtype is rl.int64, ($A / 2).dtype is rl.float32, $A // 2, -$A % 3, $A.float() + 1, ($A > 1) & ($A < 3)))
$BREAK
log.append(($A.bool(), $A.double().dtype.itemsize, ($A + 0.5).dtype is rl.float32, $A.sum() + $i))
----
log.append([int(2.9), int('12'), float($i), $i / 2, $i // 2 * 1.5, divmod(-7, $i or 1), round($i / 3, 2), -7 // 2, -7 % 3, 2 ** $i])
log.append([bool($i), $i & 6, $i | 1, ~$i, $i ^ 3, 1 << ($i % 5), ($i).bit_length(), True + $i, complex(1, 2).imag])
----
$A = {'b': 1, 'a': $i}
$A['c'] = $t
$A['b'] = 2
$A |= {'d': 4, 'a': 0}
$BREAK
$A.pop('a')
$A['a'] = 1
log.append((list($A), list(reversed($A)), $A.popitem(), {**$A, 'b': 9} | {'z': $i}))
----
$A = {'p': 1, 'q': 2}
try:
    for $B in $A:
        log.append($B)
        $A[$B + 'x'] = $i
        $BREAK
except RuntimeError as e:
    log.append(str(e))
----
def $A(f):
    @functools.wraps(f)
    def inner(*a, **k):
        log.append((f.__name__, len(a), sorted(k)))
        return f(*a, **k)
    return inner
@$A
def $B(v, k=1):
    $BREAK
    return v * k
log.append(($B($t, k=$i), $B.__name__))
----
def $A(v, n0):
    return v if n0 <= 0 else $A(v + 1, n0 - 1) * 2
log.append($A($t, $i % 4))
----
$A = functools.partial(helper, $t, k=1)
$BREAK
log.append(($A(), $A(k=5), $A.keywords, functools.reduce(lambda p, q: p + q, [$t, $t], 0)))
----
log.append((setattr(box, 'late', $t), getattr(box, 'late'), vars(box)['k'], hasattr(box, 'nope'), getattr(box, 'nope', $i)))
delattr(box, 'late')
$BREAK
log.append(sorted(vars(box)))
----
log.append(','.join(map(str, [1, $i])) + 'a b'.title() + 'x'.join(['p', 'q']) + 'Abc'[::-1] + '{:>5}'.format($i))
log.append(['a,b,,c'.split(','), 'key=val'.partition('='), '  s '.strip(), 'abc'.find('c'), 'aXb'.swapcase(), 'x' * ($i % 3), sorted('hello', reverse=True)])
----
$A = $t.detach() * w
$A.register_hook(lambda g: g * 3)
$B = ($A * $A).sum()
$BREAK
$B.backward()
log.append(w.grad)
w.grad = None
----
log.append($t[$t > 1])
log.append(($t > 1).nonzero().shape[1])
$BREAK
log.append(rl.where($t > 1, $t, 0.0))
----
with rl.autocast('cpu', dtype=rl.bfloat16):
    $A = rl.ones(2, 2) @ rl.ones(2, 2)
    $BREAK
    $B = $A @ rl.ones(2, 2) * $i
log.append(($A.dtype is rl.bfloat16, $B.float(), (rl.ones(2, 2) @ rl.ones(2, 2)).dtype is rl.float32))
----
$A = ($t * w).sum()
log.append(($A.requires_grad, $A.is_leaf, (w.detach() * 2).requires_grad))
$BREAK
$A = $A * Scale.apply(w, 2.0).sum()
$A.backward()
log.append(w.grad)
w.grad = None
----
$A = x
x = $t
$BLOCK
log.append($A is x)
x = $A
----
$A = [v for v in $L if isinstance(v, int)]
$A.sort(key=lambda v: -v)
$BREAK
log.append(($A, sorted($A), $A.count(1), $A == sorted($A), max($A, default=None)))
----
$A = Node(1, Node($i, Node($t)))
$B = $A
while $B is not None:
    log.append($B.value)
    $BREAK
    $B = $B.next
$A.next.next.next = $A
log.append($A.next.next.next.value)
----
$A = Counted()
for $B in $A:
    log.append($B)
    $BREAK
log.append(($A.n, $i in Counted(), list(Counted())))
----
$A = $L
$BREAK
$A.append($i)
$B = iter($A)
$C = enumerate($B) if $c else map(str, reversed($A))
next($C, None)
$A.extend([3, $i])
$BREAK
if $c:
    del $A[-2:]
$BREAK
log.append((list($C)[:5], list($B)[:5], next(iter($A), None)))
----
$A = $D if $c else {'a': 1}
$BREAK
$A['u'] = $i
$A.pop('p', None)
$B = [iter($A.values()), map(str, $A)] if $c else (iter($A.items()), enumerate($A))
next($B[0])
$BREAK
log.append((list($B[0]), next($B[1], None)))
for $C in $A.items() if $c else zip($A, $A.values()):
    $BREAK
    log.append($C)
----
$A = collections.deque($L, 4)
box.value = $A
$BREAK
$A.append($i)
$A.appendleft(7)
$B = zip($A, map(str, $A))
next($B)
$BREAK
log.append((list($B), [v for v in map(str, $A)], len(box.value)))
box.value = $t
"""
