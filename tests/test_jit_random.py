"""Random programs: nested branches, loops with breaks and different numbers of rounds, guards, early exits. The
compiler must give what the interpreter gives, bit for bit, in loop and in warp mode, for whole warps and odd blocks."""
import os
import random

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
