"""The lecture's deep linear model, call by call, as a program on cuBLAS would make it: y = W_L … W_1 x, squared error against x,
SGD or momentum. Column-major: a batch of B columns of D rows. Expected values are formulas over D, layers and B."""
from trace_maker import Maker

BASE = 0x7f0000000000
HOST = 0x550000000000


class Linear:
    def __init__(self, path, D=256, layers=6, B=32, steps=4, optimizer='momentum', alloc='class', dx_first=True, eval_every=0,
                 cut=None, loss='dot', device_loss=False, **maker):
        self.D, self.L, self.B, self.opt, self.dx_first, self.loss = D, layers, B, optimizer, dx_first, loss
        self.t = Maker(path, **maker)
        self.next = BASE
        self.end, self.turn = [], []        # number of calls after each step, and after its loss
        W, H = D * D * 4, D * B * 4
        self.W = self.place(alloc, [W] * layers)
        self.g = self.place(alloc, [W] * layers)
        self.m = self.place(alloc, [W] * layers) if optimizer == 'momentum' else []
        self.h = self.place(alloc, [H] * layers)
        self.x, = self.place(alloc, [H])
        self.d = self.place(alloc, [H] * 2)
        self.result = self.place(alloc, [4])[0] if device_loss else HOST
        for w in self.W:
            self.t.copy('h2d', w, HOST, W)
        for m in self.m:
            self.t.memset(m, W)
        try:
            for s in range(steps):
                if eval_every and s % eval_every == 0:
                    self.forward()
                self.cut = cut if s == steps - 1 else None
                self.step()
                self.end.append(self.t.n)
        except StopIteration:
            pass
        self.t.close()

    def place(self, alloc, sizes):
        """One allocation for all tensors of a class, or one each; 256 bytes between allocations."""
        if alloc == 'class':
            base, out = self.take(sum(sizes)), []
            for n in sizes:
                out.append(base)
                base += n
            return out
        return [self.take(n) for n in sizes]

    def take(self, n):
        a, self.next = self.next, self.next + (n + 511) // 256 * 256
        self.t.alloc(a, n)
        return a

    def point(self, name):
        if self.cut == name:
            raise StopIteration

    def product(self, A, B, C, m, n, k, ta='N', tb='N'):
        self.t.gemm(trans_a=ta, trans_b=tb, m=m, n=n, k=k, a=A, b=B, c=C, lda=m if ta == 'N' else k, ldb=k if tb == 'N' else n, ldc=m)

    def forward(self):
        D, B = self.D, self.B
        self.t.copy('h2d', self.x, HOST, D * B * 4)
        h = self.x
        for i in range(self.L):
            self.product(self.W[i], h, self.h[i], D, B, D)
            h = self.h[i]

    def step(self):
        t, D, B, n = self.t, self.D, self.B, self.D * self.D
        self.forward()
        self.point('forward')
        d, other = self.d
        t.blas('geam', 'cublasSgeam', m=D, n=B, a=self.h[-1], b=self.x, c=d, lda=D, ldb=D, ldc=D, trans_a='N', trans_b='N',
               alpha='value', beta='value')
        if self.loss == 'dot':
            t.blas('dot', 'cublasSdot_v2', n=D * B, a=d, b=d, c=self.result, lda=1, ldb=1)
        self.turn.append(t.n)
        for i in reversed(range(self.L)):
            before = self.h[i - 1] if i else self.x
            for what in ('dx', 'dw') if self.dx_first else ('dw', 'dx'):
                if what == "dw":
                    self.product(d, before, self.g[i], D, D, B, 'N', 'T')
                elif i:
                    self.product(self.W[i], d, other, D, B, D, 'T', 'N')
            d, other = other, d
            if i == self.L // 2:
                self.point('backward')
        self.point('optimizer')
        for i in range(self.L):
            if self.m:
                t.blas('scal', 'cublasSscal_v2', n=n, a=self.m[i], lda=1, alpha='value')
                t.blas('axpy', 'cublasSaxpy_v2', n=n, a=self.g[i], b=self.m[i], lda=1, ldb=1, alpha='one')
            t.blas('axpy', 'cublasSaxpy_v2', n=n, a=self.m[i] if self.m else self.g[i], b=self.W[i], lda=1, ldb=1, alpha='value')

    def expected_bytes(self):
        P, H = self.D * self.D * self.L * 4, self.D * self.B * 4
        e = dict(param=P, grad=P, activation=H * self.L, input=H, activation_grad=2 * H)
        if self.m:
            e['optimizer'] = P
        return e

    def expected_flops(self):
        forward = 2 * self.B * self.D * self.D * self.L
        return forward, forward + 2 * self.B * self.D * self.D * (self.L - 1)
