"""A kernel's single long row on several threads: its passes as phases, each shared out in blocks or run once.

Takes a kernel with rows that folds; gives C++ of one function (csrc/rt/kernels.h, PhasedRow). A fold's phase leaves the
lanes of each block in `kept`; the phase after it adds them up in order, as the kernel itself does, so the bits are the
same. What a phase makes once a row lies in front of the blocks.
"""
from .cpp import (
    BLOCK,
    Body,
    C,
    addressed,
    folds,
    free_strides,
    lane_bytes,
    numbers,
    pointers,
    uses_element,
)

SLOT = 8                            # bytes of a value of the row


def has_phases(kernel):
    body = Body(kernel)
    return bool(kernel.inner and folds(kernel) and not kernel.locals and not addressed(kernel) and not uses_element(kernel)
                and not any(map(body.gathers, kernel.sections)))


def phases_of(kernel):
    """[(whether it runs in blocks, [(what, section), ...])]: what is "fold", "elements", "join" or "row"."""
    found, once = [], []
    for s in kernel.sections:
        if s.over == "row":
            once.append(("row", s))
            continue
        if once:
            found.append((False, once))
        once = [("join", s)] if s.folds else []
        found.append((True, [("fold" if s.folds else "elements", s)]))
    return found + ([(False, once)] if once else [])


def phased(kernel, symbol):
    """(the C++, number of phases, mask of those in blocks, bytes of state, bytes a block)."""
    axis, size = kernel.inner[-1]
    state, lanes, block = {}, {}, 0
    for s in kernel.sections:
        lanes[id(s)] = block
        block += sum(lane_bytes(name) for name, _, _ in s.folds)
        for name in [n for n, _, _ in s.folds] + ([n for n, _ in s.lets] if s.over == "row" else []):
            state[name] = SLOT * len(state)
    before = -(-SLOT * len(state) // 64) * 64
    lines, known, parallel = [], [], 0
    for i, (blocks, parts) in enumerate(phases_of(kernel)):
        parallel |= blocks << i
        body = Body(kernel)
        body.open(f"case {i}:")
        for name in known:
            body.put(f"const {C[name.dtype]} {name.text} = *(const {C[name.dtype]}*)(kept + {state[name]}); (void){name.text};")
        for what, section in parts:
            at = f"kept + {before} + block * {block} + {lanes[id(section)]}"
            {"fold": fold, "elements": elements, "join": join, "row": row}[what](body, section, at, axis, size)
            if what in ("join", "row"):
                names = [n for n, _, _ in section.folds] if what == "join" else [n for n, _ in section.lets]
                for name in names:
                    body.put(f"*({C[name.dtype]}*)(kept + {state[name]}) = {name.text};")
                known += names
        body.put("break;")
        body.close()
        lines += body.lines
    free = free_strides(kernel, "rows")
    head = [f'extern "C" __attribute__((visibility("default"))) rl_i64 {symbol}(void* const* p, const rl_i64* n, const rl_number* s, '
            "char* kept, rl_i64 phase, rl_i64 begin, rl_i64 end) {", "    (void)n; (void)s;",
            *("    " + x for x in pointers(kernel) + numbers(kernel, free)),
            *(f"    const rl_i64 {f} = 1; (void){f};" for f in free),
            *(f"    const rl_i64 {a} = 0; (void){a};" for a, _ in kernel.outer + kernel.inner[:-1]), "    switch (phase) {"]
    code = "\n".join([f"// {kernel.name}, one long row", *head, *lines, "    }", "    return 0;", "}", ""])
    return code, len(phases_of(kernel)), parallel, before, block


def fold(body, section, at, axis, size):
    body.open("for (rl_i64 block = begin; block < end; ++block)")
    body.put(f"const rl_i64 start = block * {BLOCK};")
    body.lanes(section, "_lane")
    body.block(section)
    for name, _, _ in section.folds:
        body.put(f"__builtin_memcpy({at}, {name.text}_lane, {lane_bytes(name)});")
        at += f" + {lane_bytes(name)}"
    body.close()


def join(body, section, at, axis, size):
    body.lanes(section, "_all")
    body.open("for (rl_i64 block = begin; block < end; ++block)")
    body.add_lanes(section, lambda name, further: f"((const {C[name.dtype]}*)({at} + {further}))[l]")
    body.close()
    body.tree(section)


def elements(body, section, at, axis, size):
    body.put(f"const rl_i64 stop = end * {BLOCK} < {size} ? end * {BLOCK} : {size};")
    body.simd(section)
    body.loop(axis, "stop", f"begin * {BLOCK}")
    body.lets(section)
    for s in section.stores:
        body.store(s)
    body.close()


def row(body, section, at, axis, size):
    body.lets(section)
    for s in section.stores:
        body.store(s)
