"""Traces made by hand with what a device did and when: calls of the host, their activities, costs and steps, as the collector and the
analysis would have written them. Times are ns after BASE."""
from report_trace import Trace

BASE = 5_000_000_000
CALLS = {'gemm': 'cublasGemmEx', 'launch': 'cudaLaunchKernel', 'copy': 'cudaMemcpyAsync', 'memset': 'cudaMemsetAsync', 'alloc': 'cudaMalloc',
         'free': 'cudaFree', 'sync': 'cudaStreamSynchronize', 'event': 'cudaEventRecord', 'blas': 'cublasSscal_v2'}


class DeviceTrace(Trace):
    def __init__(self, path, name='NVIDIA H100 80GB HBM3', clock='gpu', capability=(9, 0), **kw):
        super().__init__(path, **kw)
        q = self.db.execute
        q('DELETE FROM api')
        for i, api in enumerate(CALLS.values(), 1):
            q('INSERT INTO api VALUES(?, ?, ?)', (i, api, 'test'))
        q('INSERT INTO device(process, ordinal, name, total_bytes, cc_major, cc_minor, clock) VALUES(1, 0, ?, 85520809984, ?, ?, ?)', (name, *capability, clock))
        self.kernels = {}

    def call(self, kind, host, device=(), step=0, phase='forward', flops=0, matmul=None, dtype=None, bytes=0, moved=None, act=None, thread=1,
             kernel=None, shape=(1, 1, 1, 256, 1, 1, 0), gemm=None, grade='exact', micro_batch=0, phases_of=None, cost=True):
        """host: (start, end); device: [(start, end)…], its activities. Its op id."""
        self.op_id += 1
        op, q = self.op_id, self.db.execute
        matmul = kind == 'gemm' if matmul is None else matmul
        q('INSERT INTO op(id, process, thread, api, kind, act, device, start_ns, end_ns, status, bytes) VALUES(?, 1, ?, ?, ?, ?, 0, ?, ?, 0, ?)',
          (op, thread, list(CALLS).index(kind) + 1, kind, act, BASE + host[0], BASE + host[1], moved))
        if kind == 'launch':
            self.launch(op, kernel, shape)
        if gemm:
            trans, m, n, k, batch = gemm
            q('INSERT INTO gemm(id, op, trans_a, trans_b, m, n, k, batch) VALUES(?, ?, ?, ?, ?, ?, ?, ?)', (op, op, trans[0], trans[1], m, n, k, batch))
        if kind in ('gemm', 'launch', 'copy', 'memset', 'blas') and cost:
            products = flops if matmul or flops is None else 0
            q('''INSERT INTO op_cost(op, step, phase, micro_batch, dtype, flops, matmul, bytes_read, bytes_written, grade, flops_most, matmul_flops,
                 matmul_flops_most) VALUES(?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)''',
              (op, step, phase, micro_batch, dtype, flops, int(matmul), bytes, 'uncounted' if flops is None else grade, flops, products, products))
        ids = [self.activity(kind if kind in ('copy', 'memset') else 'kernel', s, e, kernel if isinstance(kernel, str) else None) for s, e in device]
        if device:
            q('INSERT INTO op_time VALUES(?, ?, ?, ?, ?)', (op, BASE + min(s for s, _ in device), BASE + max(e for _, e in device),
                                                             sum(e - s for s, e in device), len(device)))
        if len(device) > 1:
            self.db.executemany('INSERT INTO op_piece VALUES(?, ?)', [(a, op) for a in ids])
        return op

    def launch(self, op, kernel, shape):
        number = 0
        if kernel:
            number = self.kernels.setdefault(kernel, len(self.kernels) + 1)
            self.db.execute('INSERT OR IGNORE INTO kernel(id, process, name, demangled) VALUES(?, 1, ?, ?)', (number, kernel, kernel))
        self.db.execute('INSERT INTO launch(op, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared_bytes) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)',
                        (op, number, *shape))

    def activity(self, kind, start, end, name=None, copy_kind=None, graph=None):
        return self.db.execute('INSERT INTO activity(process, kind, device, start_ns, end_ns, name, copy_kind, graph_node) VALUES(1, ?, 0, ?, ?, ?, ?, ?)',
                               (kind, BASE + start, BASE + end, name, copy_kind, graph)).lastrowid

    def stray(self, start, end, **kw):
        """An activity of no recorded call."""
        self.db.execute('INSERT INTO op_piece VALUES(?, NULL)', (self.activity(kw.pop('kind', 'kernel'), start, end, **kw),))

    def steps(self, *ends, tokens=None, micro_batches=1, complete=1, device=True):
        """Steps from 0 on, by the device's clock and the host's alike."""
        for i, (a, b) in enumerate(zip((0,) + ends, ends)):
            d = (BASE + a, BASE + b) if device else (None, None)
            self.db.execute('''INSERT INTO step(id, start_ns, end_ns, micro_batches, tokens, complete, device_start_ns, device_end_ns, found_by)
                               VALUES(?, ?, ?, ?, ?, ?, ?, ?, 'update')''', (i, BASE + a, BASE + b, micro_batches, tokens, complete, *d))
