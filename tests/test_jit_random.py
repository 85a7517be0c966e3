"""Random programs: nested branches, loops with breaks and different numbers of rounds, guards, early exits. The
compiler must give what the interpreter gives, bit for bit, in loop and in warp mode, for whole warps and odd blocks."""
import os
import random
import struct

import pytest

from conftest import BUILD, run

REGS, OUT_BYTES, THREADS = 8, 64, 96
PROGRAMS = 24


class Program:
    """One kernel: registers %r of a thread, %u of a warp (they change in the same way for all who run)."""

    def __init__(self, seed, warp):
        self.r = random.Random(seed)
        self.warp, self.lines, self.labels, self.preds, self.loops = warp, [], 0, 0, 0

    def emit(self, *lines):
        self.lines += lines

    def reg(self):
        return f'%r{self.r.randrange(REGS)}'

    def source(self):
        x = self.r.random()
        if x < .6:
            return self.reg()
        return str(self.r.randrange(-5, 40)) if x < .75 else self.r.choice(['%u0', '%u1', '%ln', '%tx'])

    def label(self):
        self.labels += 1
        return f'L{self.labels}'

    def new_pred(self):
        self.preds += 1
        return f'%p{self.preds}'

    def pred(self):
        p, r = self.new_pred(), self.r
        if r.random() < .25:
            self.emit(f'setp.{r.choice(["lt", "ge", "eq", "ne"])}.s32 {p}, %u{r.randrange(2)}, {r.randrange(9)};')
        else:
            t = f'%t{r.randrange(4)}'
            self.emit(f'and.b32 {t}, {self.source()}, {r.choice([1, 3, 7, 15])};',
                      f'setp.{r.choice(["lt", "ge", "eq", "ne", "gt"])}.s32 {p}, {t}, {r.randrange(6)};')
        return p

    def guard(self):
        return f'@{self.r.choice(["", "!"])}{self.pred()}'

    def simple(self):
        r = self.r
        op = r.choice(['add.s32', 'sub.s32', 'xor.b32', 'mul.lo.s32', 'and.b32', 'or.b32', 'max.s32', 'mad', 'mov',
                       'selp', 'guarded', 'load', 'store', 'uniform'])
        if op == 'mad':
            self.emit(f'mad.lo.s32 {self.reg()}, {self.source()}, {r.randrange(1, 7)}, {self.source()};')
        elif op == 'mov':
            self.emit(f'mov.u32 {self.reg()}, {self.source()};')
        elif op == 'selp':
            p = self.pred()
            self.emit(f'selp.b32 {self.reg()}, {self.source()}, {self.source()}, {p};')
        elif op == 'guarded':
            g = self.guard()
            self.emit(f'{g} add.s32 {self.reg()}, {self.source()}, {self.source()};')
        elif op == 'uniform':
            self.emit(f'add.s32 %u{r.randrange(2)}, %u{r.randrange(2)}, {r.randrange(1, 4)};')
        elif op == 'load':
            index = r.choice(['%tx', self.reg(), '%u0', '%ln'])
            self.emit(f'and.b32 %t0, {index}, 63;', f'mul.wide.u32 %d1, %t0, {r.choice([4, 4, 16])};',
                      'add.s64 %d2, %d12, %d1;', f'ld.global.u32 {self.reg()}, [%d2];')
        elif op == 'store':
            self.emit(f'mul.wide.u32 %d1, %tx, {OUT_BYTES};', 'add.s64 %d2, %d13, %d1;',
                      f'st.global.u32 [%d2+{4 * r.randrange(REGS, 14)}], {self.reg()};')
        else:
            self.emit(f'{op} {self.reg()}, {self.source()}, {self.source()};')

    def branch(self, depth, exits):
        end = self.label()
        self.emit(f'{self.guard()} bra {end};')
        self.block(depth - 1, exits)
        if self.r.random() < .5:
            other, end = end, self.label()
            self.emit(f'bra {end};', f'{other}:')
            self.block(depth - 1, exits)
        self.emit(f'{end}:')

    def loop(self, depth, exits):
        self.loops += 1
        count, limit = f'%c{self.loops}', f'%m{self.loops}'
        head, end, again = self.label(), self.label(), self.label()
        self.emit(f'mov.u32 {count}, 0;')
        if self.r.random() < .4:
            self.emit(f'mov.u32 {limit}, {self.r.randrange(1, 5)};')
        else:
            self.emit(f'and.b32 {limit}, {self.source()}, 3;')
        self.emit(f'{head}:')
        self.block(depth - 1, exits + [(again, end)])
        p = self.new_pred()
        self.emit(f'{again}:', f'add.u32 {count}, {count}, 1;', f'setp.lt.u32 {p}, {count}, {limit};',
                  f'@{p} bra {head};', f'{end}:')

    def block(self, depth, exits):
        for _ in range(self.r.randrange(1, 5)):
            x = self.r.random()
            if depth == 0 or x < .45:
                self.simple()
            elif x < .7:
                self.branch(depth, exits)
            elif x < .9 and len(exits) < 2:
                self.loop(depth, exits)
            elif x < .96 and exits:
                p = self.pred()
                self.emit(f'@{p} bra {self.r.choice(self.r.choice(exits))};')
            elif x < .98:
                p = self.pred()
                self.emit(f'@{p} bra END;' if self.r.random() < .7 else f'@{p} exit;')
            else:
                self.simple()

    def text(self):
        self.emit(*(f'mad.lo.u32 %r{k}, %tx, {k * 7 + 1}, {k};' for k in range(REGS)))
        self.emit('mov.u32 %u0, 3;', 'mov.u32 %u1, %ctaid.x;')
        self.block(4, [])
        self.emit('END:', f'mul.wide.u32 %d1, %tx, {OUT_BYTES};', 'add.s64 %d2, %d13, %d1;')
        self.emit(*(f'st.global.u32 [%d2+{4 * k}], %r{k};' for k in range(REGS)))
        self.emit('add.s32 %u0, %u0, %u1;', f'st.global.u32 [%d2+{OUT_BYTES - 4}], %u0;', 'ret;')
        body = '\n'.join(self.lines)
        return f"""
.visible .entry k(.param .u64 in, .param .u64 out)
{{
.reg .pred %p<{self.preds + 1}>;
.reg .b32 %r<{REGS}>, %t<4>, %u<2>, %c<{self.loops + 1}>, %m<{self.loops + 1}>, %tx, %ln;
.reg .b64 %d<14>;
mov.u32 %tx, %tid.x;
and.b32 %ln, %tx, 31;
{'bar.warp.sync -1;' if self.warp else ''}
ld.param.u64 %d12, [in];
ld.param.u64 %d13, [out];
{body}
}}
"""


@pytest.mark.parametrize('threads,warp', [(THREADS, False), (THREADS, True), (50, True)])
def test_random_programs(tmp_path, monkeypatch, threads, warp):
    monkeypatch.setenv('ACCT_CACHE', str(tmp_path / 'cache'))
    (tmp_path / 'in').write_bytes(random.Random(1).randbytes(THREADS * OUT_BYTES))
    for seed in range(PROGRAMS):
        ptx = tmp_path / f'{seed}.ptx'
        ptx.write_text('.version 8.1\n.target sm_80\n.address_size 64\n' + Program(1000 * threads + seed, warp).text())
        for program in ('ptx_exec', 'ptx_exec_jit'):
            r = run(os.path.join(BUILD, 'tests', program), ptx, tmp_path / 'in', tmp_path / program, threads)
            assert r.returncode == 0, f'{ptx}: {r.stderr}'
        same = (tmp_path / 'ptx_exec').read_bytes() == (tmp_path / 'ptx_exec_jit').read_bytes()
        assert same, f'{ptx}: the compiler gives something else than the interpreter'


def same_results(tmp_path, name, text, data, threads):
    """Interpreter and compiler on one text: what both leave in `out`."""
    ptx = tmp_path / f'{name}.ptx'
    ptx.write_text('.version 8.1\n.target sm_80\n.address_size 64\n' + text)
    (tmp_path / 'in').write_bytes(data)
    for program in ('ptx_exec', 'ptx_exec_jit'):
        r = run(os.path.join(BUILD, 'tests', program), ptx, tmp_path / 'in', tmp_path / program, threads)
        assert r.returncode == 0, f'{ptx}: {r.stderr}'
    left = (tmp_path / 'ptx_exec').read_bytes()
    assert left == (tmp_path / 'ptx_exec_jit').read_bytes(), f'{ptx}: the compiler gives something else than the interpreter'
    return left


def kernel(regs, lines):
    return f"""
.visible .entry k(.param .u64 in, .param .u64 out)
{{
{regs}
.reg .b32 %tx;
.reg .b64 %d<4>;
mov.u32 %tx, %tid.x;
ld.param.u64 %d0, [in];
ld.param.u64 %d1, [out];
mul.wide.u32 %d2, %tx, {OUT_BYTES};
add.s64 %d0, %d0, %d2;
add.s64 %d1, %d1, %d2;
{chr(10).join(lines)}
}}
"""


class Folds:
    """Sums and extremes over a warp by butterflies: whole ones, whose lanes end alike, and such as only look like it (a bit
    left out or a lane number off, an operand changed in between, a segment, lanes that have left or are elsewhere)."""

    def __init__(self, seed):
        self.r, self.lines, self.tmp = random.Random(seed), [], 0

    def new(self):
        self.tmp += 1
        return f'%s{self.tmp}'

    def step(self, x, kind, bit, op, break_it):
        r, part, y = self.r, self.new(), self.new()
        source = x
        if r.random() < .4:
            source = self.new()
            self.lines.append(f'mov.b32 {source}, {x};')
        form = 'bfly' if break_it != 'down' else 'down'
        clamp = 31 if break_it != 'segment' else 0x101f
        self.lines.append(f'shfl.sync.{form}.b32 {part}, {source}, {bit}, {clamp}, -1;')
        if break_it == 'changed':
            self.lines.append(f'add.{"s32" if kind == "s32" else "f32"} {x}, {x}, {x};')
        a, b = (x, part) if r.random() < .5 else (part, x)
        self.lines.append(f'{op}.{kind} {y}, {a}, {b};')
        return y

    def fold(self, x, whole):
        r = self.r
        kind = r.choice(['f32', 'f32', 's32'])
        op = r.choice(['add', 'max', 'min'])
        bits = [1, 2, 4, 8, 16]
        r.shuffle(bits)
        broken = None if whole else r.choice(['down', 'changed', 'segment', 'missing', 'odd', 'order'])
        at = r.randrange(5)
        if broken == 'missing':
            bits[at] = bits[at - 1]
        if broken == 'odd':
            bits[at] = 3
        for n, bit in enumerate(bits):
            x = self.step(x, kind, bit, ('sub' if broken == 'order' and n == at else op), broken if n == at else None)
        return x

    def text(self):
        r = self.r
        start = ['ld.global.b32 %v0, [%d0];', 'ld.global.b32 %v1, [%d0+4];']
        kind = r.random()
        if kind < .15:  # some lanes leave
            start += [f'and.b32 %t, %tx, {r.choice([1, 4, 31])};', 'setp.eq.u32 %p, %t, 1;', r.choice(['@%p exit;', '@%p bra END;'])]
        elif kind < .3:  # a whole warp does
            start += ['shr.u32 %t, %tx, 5;', 'setp.eq.u32 %p, %t, 1;', '@%p bra END;']
        elif kind < .45:  # lanes part and meet again
            start += [f'and.b32 %t, %tx, {r.choice([1, 4])};', 'setp.eq.u32 %p, %t, 0;', '@%p bra ON;', 'add.s32 %v0, %v0, %v1;', 'ON:']
        for n in range(3):
            self.lines.append(f'st.global.b32 [%d1+{4 * n}], {self.fold(r.choice(["%v0", "%v1"]), r.random() < .5)};')
        lines = start + self.lines + ['END:', 'ret;']
        return kernel(f'.reg .b32 %v<2>, %t, %s<{self.tmp + 1}>;\n.reg .pred %p;', lines)


@pytest.mark.parametrize('threads', [THREADS, 50])
def test_folds_over_a_warp(tmp_path, monkeypatch, threads):
    monkeypatch.setenv('ACCT_CACHE', str(tmp_path / 'cache'))
    numbers = random.Random(3)
    data = b''.join(struct.pack('<f', numbers.uniform(-4, 4)) for _ in range(THREADS * OUT_BYTES // 4))
    for seed in range(PROGRAMS):
        same_results(tmp_path, f'fold-{seed}', Folds(seed).text(), data, threads)


@pytest.mark.parametrize('warp', [False, True])
def test_rounding_down_to_a_whole_number(tmp_path, monkeypatch, warp):
    """expf's fma.rm, and what is like it: numbers next to whole ones, of all sizes."""
    monkeypatch.setenv('ACCT_CACHE', str(tmp_path / 'cache'))
    r = random.Random(5)
    values = [0, 1, -1, 2, float('inf'), float('-inf'), float('nan'), 1e-40, 2 ** -149, 0.5, 1 - 2 ** -24]
    values += [k / 252 for k in range(0, 253, 7)] + [2.0 ** -k for k in range(1, 60, 3)]
    bits = [struct.unpack('<I', struct.pack('<f', v))[0] for v in values]
    bits = (bits + [b + d for b in bits[9:] for d in (1, -1)])[:THREADS * 14]
    bits += [r.randrange(0x3f800000) for _ in range(THREADS * 16 - len(bits))]
    data = struct.pack(f'<{len(bits)}I', *(b & 0xffffffff for b in bits))
    lines = ['bar.warp.sync -1;'] if warp else []
    at = 0
    for k in range(14):
        b = [252, 252, 1, 3.7, 1000, 4194304, 0.5, -3][k % 8]
        c = [12582913, 8388608, 12582912, 8388608.0 + 7, 12582913, 8388608, 12582913, 12582913][k % 8]
        sat = 'cvt.sat.f32.f32 %a, %x;' if k % 3 else 'fma.rn.sat.f32 %a, %x, 0f3F800000, 0f00000000;'
        b, c = (struct.pack('>f', v).hex() for v in (b, c))
        lines += [f'ld.global.f32 %x, [%d0+{4 * k}];', sat, f'mov.f32 %b{k}, 0f{b};', f'fma.rm.f32 %y, %a, %b{k}, 0f{c};', f'st.global.f32 [%d1+{4 * at}], %y;']
        at += 1
    lines += ['fma.rm.f32 %y, %x, 0f437C0000, 0f4B400001;', f'st.global.f32 [%d1+{4 * at}], %y;', 'ret;']  # x is of any size
    same_results(tmp_path, 'down', kernel('.reg .f32 %x, %a, %b<14>, %y;', lines), data, THREADS)
