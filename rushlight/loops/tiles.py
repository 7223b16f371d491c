"""Pointwise kernels whose operands lie across one another in memory: blocks of TILE x TILE elements, in which an operand
of the other order is first turned over into an array of its own, so that whole cache lines are read and written.

Takes a kernel without rows, and the operands that have unit stride along another axis than the innermost; gives the
statements of the form `tiled`. The form wants that axis to be the second last; its entry swaps axes where it is the first.
"""
from rushlight import dtypes

TILE = 64
LEAST = 16                          # steps along either axis below which turning over does not pay
MOST = 2                            # operands that are turned over: their blocks stay in the first cache

TURN = """
#if defined(__clang__) || __GNUC__ >= 12
typedef float rl_lanes8 __attribute__((vector_size(32), aligned(4), may_alias));

RL_FN void rl_turn8(const void* from, rl_i64 step, void* to) { // 8 x 8 elements of 4 bytes: halves, pairs, neighbours
    rl_lanes8 r[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) r[i] = *(const rl_lanes8*)((const float*)from + i * step);
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
        const rl_lanes8 a = r[i], b = r[i + 4];
        r[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; ++k) {
        const int i = k + (k & 2);
        const rl_lanes8 a = r[i], b = r[i + 2];
        r[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 2] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 8; i += 2) {
        const rl_lanes8 a = r[i], b = r[i + 1];
        r[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
        r[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) *(rl_lanes8*)((float*)to + i * TILE) = r[i];
}
#define RL_TURNS(T) (sizeof(T) == 4)
#else
RL_FN void rl_turn8(const void*, rl_i64, void*) {}
#define RL_TURNS(T) false
#endif

template <class T> RL_FN void rl_turn(const T* x, rl_i64 step, int rows, int columns, T* to) { // to[c][r] = x[r * step + c]
    int r = 0;
    for (; RL_TURNS(T) && r + 8 <= rows; r += 8) {
        int c = 0;
        for (int k = 0; k < 8; ++k) // the same rows of the next block
            _Pragma("GCC unroll 8") for (int b = 0; b < TILE; b += 64 / (int)sizeof(T)) __builtin_prefetch(x + (r + k + TILE) * step + b, 0, 1);
        for (; c + 8 <= columns; c += 8) rl_turn8(x + r * step + c, step, to + c * TILE + r);
        for (; c < columns; ++c) for (int k = 0; k < 8; ++k) to[c * TILE + r + k] = x[(r + k) * step + c];
    }
    for (; r < rows; ++r) for (int c = 0; c < columns; ++c) to[c * TILE + r] = x[r * step + c];
}
""".replace("TILE", str(TILE))


def turned(name):
    """The array that a block of an operand is turned over into."""
    return f"{name}_turned"


def tiled(body, storage, tiles, near):
    """The statements of the form, put into `body` (cpp.Body). `tiles`: names of the operands to turn over; `near`: of those
    that lie along the innermost axis, which are asked for a block ahead."""
    (outer, n0), (across, n1), (axis, size) = body.kernel.outer
    dtype = {b.name: b.dtype for b in body.kernel.buffers}
    for name in tiles:
        body.put(f"{storage(dtype[name])} {turned(name)}[{TILE * TILE}];")
    for section in body.kernel.sections:
        stages = body.stages(section)
        body.loop(outer, n0)
        body.open(f"for (rl_i64 above = 0; above < {n1}; above += {TILE})")
        body.put(f"const int deep = {n1} - above < {TILE} ? (int)({n1} - above) : {TILE};")
        body.open(f"for (rl_i64 first = 0; first < {size}; first += {TILE})")
        body.put(f"const int count = {size} - first < {TILE} ? (int)({size} - first) : {TILE};")
        for b in tiles:
            place = f"{b} + {outer} * {b}_{outer} + above + first * {b}_{axis}"
            body.put(f"rl_turn({place}, {b}_{axis}, count, deep, {turned(b)});")
        body.open("for (int d = 0; d < deep; ++d)")
        body.put(f"const rl_i64 {across} = above + d;")
        for b in near:
            place = f"{b} + {outer} * {b}_{outer} + {across} * {b}_{across} + first + {TILE}"
            step = 64 // dtypes.TABLE[dtype[b]].itemsize
            written = int(any(x.name == b and x.written for x in body.kernel.buffers))
            body.put(f'_Pragma("GCC unroll 8") for (int b = 0; b < {TILE}; b += {step}) __builtin_prefetch({place} + b, {written});')
        body.tiles = set(tiles)
        for name in body.live(stages):
            body.declare(name, TILE)
        for s in stages:
            body.across(axis, s, lambda s=s: (body.lets(s), [body.store(x) for x in s.stores]))
        body.tiles = set()
        for _ in range(4):
            body.close()


def swapped(axes, buffers):
    """C statements: the ABI's numbers `n` with the first two of `axes` axes in each other's place, as `m`."""
    groups, count = buffers + 2, axes * (buffers + 2) + 1
    return (f"rl_i64 m[{count}]; for (int i = 0; i < {count}; ++i) m[i] = n[i]; "
            f"for (int i = 0; i < {groups * axes}; i += {axes}) {{ m[i] = n[i + 1]; m[i + 1] = n[i]; }}")
