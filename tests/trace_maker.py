"""Makes trace databases by hand: tables as trace/schema.sql and trace/events.def say, rows as the collector would write them.

A time step is 1000 ns: the call number i (from 0) starts at (i + 1) * 1000 and takes 500 ns, its op id is i + 1."""
import contextlib, json, os, re, sqlite3
from conftest import TOP

TYPES = {'u64': 'INTEGER', 'i64': 'INTEGER', 'u32': 'INTEGER', 'i32': 'INTEGER', 'f64': 'REAL', 'text': 'TEXT'}
DETAILS = ('copy', 'memset', 'gemm', 'blas', 'workspace', 'launch')
RECORDED = ('ptx', 'module', 'kernel', 'correlation', 'activity', 'range', 'tag', 'stack', 'frame', 'op_stack', 'window',
            'collective') # rows as they are in the schema


def event_fields():
    """{event: [(field, SQL type)]} of the events that have a table of their own."""
    src = open(os.path.join(TOP, 'trace', 'events.def')).read()
    name = {n.upper(): n for n in DETAILS}
    out = {n: [] for n in DETAILS}
    for event, typ, field in re.findall(r'^FIELD\((\w+), (\w+), (\w+),', src, re.M):
        if event in name:
            out[name[event]].append((field, TYPES.get(typ, 'TEXT')))
    return out


FIELDS = event_fields()



class Maker:
    """Calls in the order of the program; each returns its number i."""

    def __init__(self, path, device_name='test device', environment='{}'):
        if os.path.exists(path):
            os.unlink(path)
        self.path, self.n, self.live, self.apis = path, 0, {}, {}
        self.rows = {t: [] for t in ('op', 'alloc', 'op_buffer') + DETAILS + RECORDED}
        self.free_of = {}
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(open(os.path.join(TOP, 'trace', 'schema.sql')).read())
        for t in DETAILS:
            cols = ', '.join(f'"{f}" {typ}' for f, typ in FIELDS[t])
            key = 'id INTEGER PRIMARY KEY, op INTEGER' if t == 'gemm' else 'op INTEGER PRIMARY KEY'
            self.db.execute(f'CREATE TABLE "{t}"({key}, {cols})')
        q = self.db.execute
        q('BEGIN')
        q("INSERT INTO meta VALUES('schema_version', 1), ('state', 'complete')")
        q("INSERT INTO process(id, pid, start_ns, exe, argv, environment) VALUES(1, 100, 0, '/bin/train', '[\"train\"]', ?)", (environment,))
        q('INSERT INTO thread(id, process, tid, start_ns) VALUES(1, 1, 100, 0)')
        q("INSERT INTO device(id, process, ordinal, name, total_bytes, cc_major, cc_minor, clock) VALUES(1, 1, 0, ?, 85520809984, 9, 0, 'host')",
          (device_name,))

        self.thread, self.threads, self.between = 1, 1, (0, 0)

    def new_thread(self):
        """A further thread; calls come from thread 1 until `thread` is set."""
        self.threads += 1
        self.db.execute('INSERT INTO thread(id, process, tid, start_ns) VALUES(?, 1, ?, 0)', (self.threads, 99 + self.threads))
        return self.threads

    def now(self):
        """A moment between the calls made and the next, later than that of the last question."""
        n, k = self.between
        self.between = (self.n, k + 1 if n == self.n else 0)
        return (self.n + 1) * 1000 - 400 + self.between[1]

    def op(self, kind, api, library='cudart', status=0, start=None, bytes=None, object=None, act=None):
        i = self.n
        self.n += 1
        a = self.apis.setdefault((api, library), len(self.apis) + 1)
        t = (i + 1) * 1000
        self.rows['op'].append((i + 1, 1, self.thread, a, kind, act, 0, 0, t if start is None else start, t + 500, status, bytes, object))
        return i

    def detail(self, table, i, **values):
        v = [values.get(f) for f, _ in FIELDS[table]]
        unknown = set(values) - {f for f, _ in FIELDS[table]}
        assert not unknown, unknown
        self.rows[table].append((([i + 1] * 2) if table == 'gemm' else [i + 1]) + v)

    def alloc(self, address, n, memory='device', start=None):
        i = self.op('alloc', 'cudaMalloc', start=start, bytes=n, object=address)
        self.live[address] = i + 1
        self.rows['alloc'].append([i + 1, 1, address, n, memory, 0, None, (i + 1) * 1000 + 500, None, None])
        return i

    def free(self, address):
        i = self.op('free', 'cudaFree', object=address)
        self.free_of[self.live.pop(address)] = ((i + 1) * 1000, i + 1)
        return i

    def copy(self, direction, dst, src, n, status=0):
        i = self.op('copy', 'cudaMemcpyAsync', status=status, bytes=n, act=direction)
        self.detail('copy', i, dst=dst, src=src, bytes=n, direction=direction)
        return i

    def memset(self, dst, n):
        i = self.op('memset', 'cudaMemsetAsync', bytes=n)
        self.detail('memset', i, dst=dst, bytes=n, value=0, element_bytes=1)
        return i

    def gemm(self, start=None, status=0, **v):
        i = self.op('gemm', 'cublasSgemm_v2', 'cublas', start=start, status=status)
        d = dict(trans_a='N', trans_b='N', batch=1, a_type='fp32', b_type='fp32', c_type='fp32', compute='fp32', alpha='one',
                 beta='zero', pointer_array=0, math_mode=0)
        d.update(v)
        self.detail('gemm', i, **d)
        return i

    def blas(self, routine, api, status=0, **v):
        i = self.op('blas', api, 'cublas', status=status)
        d = dict(routine=routine, type='fp32', batch=1, pointer_array=0, a=0, b=0, c=0)
        d.update(v)
        self.detail('blas', i, **d)
        return i

    def workspace(self, address, n):
        i = self.op('workspace', 'cublasSetWorkspace_v2', 'cublas', bytes=n, object=address)
        self.detail('workspace', i, handle=1, address=address, bytes=n)
        return i

    def launch(self, name, buffers):
        """buffers: [(address, mode, bytes or None)]"""
        i = self.op('launch', name, 'program')
        for j, (p, m, n) in enumerate(buffers):
            self.buffer(i, str(j), p, n, m)
        return i

    def kernel(self, name, params, ptx=None, modules=1):
        """A kernel, with the text of its module (or of several, of which one has it); its number."""
        texts = ptx if isinstance(ptx, (list, tuple)) else [ptx]
        first = len(self.rows['module']) + 1
        for text in texts:
            digest = len(self.rows['ptx']) + 1
            if text is not None:
                self.rows['ptx'].append((digest, 0, 0, text.encode()))
            self.rows['module'].append((len(self.rows['module']) + 1, 1, 80, 80, digest if text is not None else None, 'program', None))
        n = len(self.rows['kernel']) + 1
        self.rows['kernel'].append((n, 1, first, len(texts), name, None, json.dumps(params), None, None, None, None))
        return n

    def launch_kernel(self, kernel, args, grid=(1, 1, 1), block=(32, 1, 1), external=0):
        """args: the argument bytes."""
        i = self.op('launch', 'cudaLaunchKernel', 'cudart')
        self.detail('launch', i, kernel=kernel, grid_x=grid[0], grid_y=grid[1], grid_z=grid[2], block_x=block[0], block_y=block[1],
                    block_z=block[2], dynamic_shared_bytes=0, cooperative=0, args=args, external=external)
        return i

    def correlation(self, correlation, external):
        self.rows['correlation'].append((correlation, external))

    def activity(self, correlation, start, end, kind='kernel'):
        self.rows['activity'].append((None, 1, kind, correlation, 0, 1, 7, start, end) + (None,) * 14)

    def buffer(self, i, slot, address, n, mode):
        self.rows['op_buffer'].append((i + 1, slot, None, address, n, mode))

    def begin(self, name, kind='push', source='nvtx', domain=None, thread=None, at=None):
        """A range that has begun; the handle for `end`. thread 0: none is known."""
        ns = self.now() if at is None else at
        thread = self.thread if thread is None else thread or None
        r = [len(self.rows['range']) + 1, 1, thread, source, kind, domain, name, None, None, ns, ns if kind == 'mark' else None]
        self.rows['range'].append(r)
        return r

    def end(self, r, at=None):
        r[10] = self.now() if at is None else at

    @contextlib.contextmanager
    def range(self, name, **how):
        r = self.begin(name, **how)
        yield r
        self.end(r)

    def mark(self, name, source='nvtx'):
        return self.begin(name, 'mark', source)

    def tag(self, address, n, text):
        self.rows['tag'].append((None, 1, self.thread, self.now(), address, n, text))

    def stack(self, *frames):
        """Frames from the innermost out, as (symbol, path) or (symbol, path, file, line); the stack's number."""
        n = len(self.rows['stack']) + 1
        self.rows['stack'].append((n, 1, len(frames), 0))
        for d, f in enumerate(frames):
            symbol, path, file, line = (tuple(f) + (None, None))[:4]
            self.rows['frame'].append((n, d, 0x400000 + d, path, None, d, symbol, file, line))
        return n

    def called_from(self, i, stack):
        self.rows['op_stack'].append((i + 1, stack))

    def window(self, start, end, why):
        self.rows['window'].append((None, 1, start, end, why))

    def collective(self, operation, count, send=0, receive=0, ranks=2, rank=0, type='fp32', reduction=None, root=None, status=0):
        i = self.op('collective', 'nccl' + operation.title().replace('_', ''), 'nccl', status=status)
        self.rows['collective'].append((i + 1, operation, count, type, send, receive, 1, ranks, rank, root, reduction))
        return i

    def close(self):
        q = self.db
        for (name, lib), a in self.apis.items():
            q.execute('INSERT INTO api VALUES(?, ?, ?)', (a, name, lib))
        for r in self.rows['alloc']:
            r[8], r[9] = self.free_of.get(r[0], (None, None))
        for t, rows in self.rows.items():
            if rows:
                q.executemany(f'INSERT INTO "{t}" VALUES({",".join("?" * len(rows[0]))})', rows)
        q.execute('COMMIT')
        q.close()
        return self.path
