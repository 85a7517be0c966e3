"""Traces made by hand for the tests of the command line: trace/schema.sql plus the detail tables of trace/events.def, filled
with contents that the test knows."""
import json, os, re, sqlite3
from conftest import TOP

CLASSES = ('param', 'grad', 'optimizer', 'activation', 'activation_grad', 'input', 'workspace', 'temporary', 'other', 'unknown')


def create(path):
    """An empty trace of schema 1 that counts as analysed, with a process and no device."""
    db = sqlite3.connect(path)
    db.executescript(open(os.path.join(TOP, 'trace/schema.sql')).read())
    events = open(os.path.join(TOP, 'trace/events.def')).read()
    for upper, name in re.findall(r'EVENT\((\w+), (\w+), OP,', events):
        if name in ('copy', 'memset', 'gemm', 'blas', 'workspace', 'launch'):
            key = 'id INTEGER PRIMARY KEY, op INTEGER' if name == 'gemm' else 'op INTEGER PRIMARY KEY'
            fields = re.findall(r'FIELD\(%s, \w+, (\w+),' % upper, events)
            db.execute(f'CREATE TABLE "{name}"({key}, ' + ', '.join(f'"{f}"' for f in fields) + ')')
    db.executemany('INSERT INTO meta VALUES(?, ?)', [('schema_version', 1), ('acct_version', 'test'), ('state', 'complete'), ('analysis_version', 1 << 20)])
    return db


class Trace:
    """Rows by short calls; ids and times are counted here unless given."""

    def __init__(self, path, argv=('train',), pid=4242, exit_code=0):
        self.path, self.db, self.op_id = str(path), create(path), 0
        self.db.execute("INSERT INTO process VALUES(1, ?, 1, 0, 1000000000, 'exit', ?, '/bin/train', '/', ?, '{}')", (pid, exit_code, json.dumps(list(argv))))
        self.db.execute("INSERT INTO api VALUES(1, 'cublasGemmEx', 'cublas')")

    def meta(self, **kw):
        for k, v in kw.items():
            self.db.execute('INSERT OR REPLACE INTO meta VALUES(?, ?)', (k, v))

    def device(self, name, peak_fp32=None, peak_fp64=None, source=None, ordinal=0, peak_bf16=None):
        self.db.execute('INSERT INTO device(process, ordinal, name, total_bytes, cc_major, cc_minor, clock, peak_fp32, peak_fp64, peak_source, peak_bf16) '
                        "VALUES(1, ?, ?, 85520809984, 9, 0, 'host', ?, ?, ?, ?)", (ordinal, name, peak_fp32, peak_fp64, source, peak_bf16))

    def op(self, kind='gemm', start=0, end=0, status=0, api=1):
        self.op_id += 1
        self.db.execute('INSERT INTO op(id, process, thread, api, kind, device, start_ns, end_ns, status) VALUES(?, 1, 1, ?, ?, 0, ?, ?, ?)',
                        (self.op_id, api, kind, start, end, status))
        return self.op_id

    def alloc(self, size, begin, end=None, classes=None, memory='device', address=None):
        """classes: [(offset, bytes, from, until, class)] or a name for all of it."""
        op = self.op('alloc', begin - 1, begin)
        self.db.execute('INSERT INTO alloc VALUES(?, 1, ?, ?, ?, 0, NULL, ?, ?, NULL)', (op, address or op << 40, size, memory, begin, end))
        if isinstance(classes, str):
            classes = [(0, size, None, None, classes)]
        for offset, n, since, until, cls in classes or []:
            self.db.execute("INSERT INTO alloc_class VALUES(?, ?, ?, ?, ?, ?, 0.9, 'rule of the test')", (op, offset, n, since, until, cls))
        return op

    def step(self, index, start, end, products, tokens=None, micro_batches=1, complete=1):
        """products: [(phase, dtype, flops or None, matmul)]"""
        ids = []
        for phase, dtype, flops, matmul in products:
            op = self.op('gemm' if matmul else 'blas', start, start + 1)
            self.cost(op, index, phase, dtype, flops, matmul)
            ids.append(op)
        self.db.execute('INSERT INTO step(id, start_ns, end_ns, first_op, last_op, micro_batches, tokens, complete) VALUES(?, ?, ?, ?, ?, ?, ?, ?)', (index, start, end, ids[0] if ids else None, ids[-1] if ids else None, micro_batches, tokens, complete))
        for n, phase in enumerate(('forward', 'backward', 'optimizer')):
            self.db.execute('INSERT INTO phase(step, name, micro_batch, start_ns, end_ns) VALUES(?, ?, 0, ?, ?)', (index, phase, start + n, start + n + 1))
        return ids

    def cost(self, op, step, phase, dtype, flops, matmul):
        products = flops if matmul or flops is None else 0
        self.db.execute('INSERT INTO op_cost VALUES(?, ?, ?, 0, ?, ?, NULL, ?, 0, 0, ?, ?, ?, ?, NULL)',
                        (op, step, phase, dtype, flops, matmul, 'uncounted' if flops is None else 'exact', flops, products, products))

    def close(self):
        self.db.commit()
        self.db.close()
        return self.path
