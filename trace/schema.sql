-- The trace: tables that the collector records, tables that the analyzer computes, and views for people.
-- Times are CLOCK_MONOTONIC ns, sizes bytes, amounts FLOPs (a multiply-add is 2). NULL is "not known", never 0.
-- Tables of one event's fields (copy, memset, gemm, blas, workspace, launch) are made from trace/events.def, with `op` in front:
--   copy, memset, blas, workspace, launch: op INTEGER PRIMARY KEY (the op's id), then the event's fields
--   gemm: id INTEGER PRIMARY KEY, op INTEGER (a grouped GEMM has one row a group; the first has id = op), then the fields
-- Numbers are stored as the vendor's call gave them; enums as their text.

-- ==== recorded ==========================================================================================================
CREATE TABLE meta(
  key   TEXT PRIMARY KEY,          -- schema_version, acct_version, state (running | complete | truncated), reason,
  value ANY                        -- start_mono_ns, start_utc_ns, end_mono_ns, end_utc_ns, collector_pid,
) WITHOUT ROWID;                   -- analysis_version (absent: not analysed yet), analysis (why not),
                                   -- cupti (why there are no device times), cupti_dropped (activity records),
                                   -- launches (why launches are not in it), prices_cut_short (launches whose price
                                   -- would be more exact had the analysis tried longer), mark_notes (what the analysis says of the markers: a line each),
                                   -- user_rules (file of rules that the classes were settled by)

CREATE TABLE process(
  id INTEGER PRIMARY KEY,
  pid INTEGER, ppid INTEGER,
  start_ns INTEGER, end_ns INTEGER,
  end_reason TEXT,                 -- exit | exec | ended (killed, crashed or _exit: no exit handler ran)
  exit_code INTEGER,               -- as a shell shows it: 128 + signal if killed; NULL if nobody could know
  exe TEXT, cwd TEXT,
  argv TEXT,                       -- JSON array
  environment TEXT                 -- JSON object: variables that change what CUDA computes or allocates
);

CREATE TABLE thread(
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  tid INTEGER, name TEXT, start_ns INTEGER
);

CREATE TABLE api(                  -- names behind op.api
  id INTEGER PRIMARY KEY, name TEXT, library TEXT
);

CREATE TABLE device(
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  ordinal INTEGER, name TEXT, total_bytes INTEGER,
  cc_major INTEGER, cc_minor INTEGER, sm_count INTEGER, clock_khz INTEGER,
  clock TEXT,                      -- gpu | cpu | model | host: where device times come from
  peak_fp32 REAL, peak_fp64 REAL,  -- measured, FLOP/s; NULL: look the device up in include/acct/devices.def
  peak_source TEXT,
  peak_tf32 REAL, peak_bf16 REAL, peak_fp16 REAL, peak_fp8 REAL,
  bytes_per_s REAL                 -- of its memory, read and written; NULL: look the device up
);

CREATE TABLE meminfo(              -- what the driver said of a device's memory
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  ns INTEGER,                      -- when it was asked
  why TEXT,                        -- first use (of the device) | release, allocation (before a cudaFree, a cudaMalloc) | no memory (after the call `op`)
  op INTEGER REFERENCES op(id),    -- the call that found no memory; NULL: none, or its record was lost
  device INTEGER,                  -- ordinal
  free_bytes INTEGER, total_bytes INTEGER, -- cudaMemGetInfo
  pool INTEGER,                    -- handle of the pool asked of; NULL: the program has used no stream-ordered memory
  pool_reserved_bytes INTEGER, pool_used_bytes INTEGER -- what it holds, and of that in allocations
);

CREATE TABLE stream(               -- streams that the program created; handles may come again after destroyed_ns
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  handle INTEGER, device INTEGER, flags INTEGER, priority INTEGER,
  created_ns INTEGER, destroyed_ns INTEGER
);

CREATE TABLE op(                   -- one call of the program; ids grow with time within a thread, not between threads
  id INTEGER PRIMARY KEY,
  process INTEGER REFERENCES process(id), thread INTEGER REFERENCES thread(id),
  api INTEGER REFERENCES api(id),
  kind TEXT NOT NULL,              -- alloc free copy memset gemm blas launch stream event sync workspace collective
  act TEXT,                        -- stream, event: create destroy record wait_event …; sync: device stream event; copy: direction
  device INTEGER,                  -- ordinal that was current
  stream INTEGER,                  -- handle; 0 the legacy default stream; NULL the call names none
  start_ns INTEGER, end_ns INTEGER,-- host clock around the call
  status INTEGER NOT NULL,         -- what it returned; 0 success
  bytes INTEGER,                   -- asked for (alloc, also when it failed), moved, set, handed over
  object INTEGER                   -- address (alloc, free, workspace) or event handle (event, sync, wait_event)
);

CREATE TABLE alloc(                -- one successful allocation of more than 0 bytes
  id INTEGER PRIMARY KEY,          -- = op.id of the allocating call
  process INTEGER REFERENCES process(id),
  address INTEGER NOT NULL, bytes INTEGER NOT NULL,
  memory TEXT,                     -- device async managed pinned registered array
  device INTEGER, stream INTEGER,
  alloc_ns INTEGER,                -- after the allocating call
  free_ns INTEGER,                 -- before the releasing call; NULL: live when the process ended
  free_op INTEGER REFERENCES op(id) -- NULL with free_ns: the release was not recorded (lost); its address was handed out again then
);

CREATE TABLE ptx(                  -- texts, each once
  hash INTEGER PRIMARY KEY,        -- FNV-1a, 64 bit, of the payload
  flags INTEGER,                   -- 0x2000 LZ4, 0x8000 zstd, neither: plain
  uncompressed_bytes INTEGER,      -- of the text; 0: the payload is not compressed
  payload BLOB                     -- as the program carries it
);

CREATE TABLE module(               -- a translation unit of a fat binary that the program registered
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  arch INTEGER, isa INTEGER,       -- compute capability; PTX version * 10
  hash INTEGER REFERENCES ptx(hash), -- NULL: machine code only, or the text could not be had (why)
  path TEXT,                       -- the file that it came from
  why TEXT
);

CREATE TABLE kernel(
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  module INTEGER REFERENCES module(id), -- NULL: not known; first of `modules` translation units, one of which has the kernel
  modules INTEGER,
  name TEXT,                       -- mangled
  demangled TEXT,                  -- filled by acct analyze
  params TEXT,                     -- JSON: [[offset, bytes], …] of each parameter; NULL: not known
  registers INTEGER, static_shared_bytes INTEGER, local_bytes INTEGER, max_threads INTEGER
);

CREATE TABLE correlation(          -- driver and runtime calls made inside a recorded call
  id INTEGER PRIMARY KEY,          -- CUPTI's correlation id
  external INTEGER                 -- = launch.external, copy.external, memset.external, gemm.external, blas.external
);

CREATE TABLE activity(             -- what the device did, as CUPTI tells it
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  kind TEXT NOT NULL,              -- kernel copy memset
  correlation INTEGER,             -- see correlation
  device INTEGER, context INTEGER, stream INTEGER, -- ordinal; CUPTI's numbers of context and stream
  start_ns INTEGER, end_ns INTEGER,-- the device's times on CLOCK_MONOTONIC; NULL: CUPTI had none
  name TEXT,                       -- of a kernel, mangled
  grid_x INTEGER, grid_y INTEGER, grid_z INTEGER, block_x INTEGER, block_y INTEGER, block_z INTEGER,
  registers INTEGER, static_shared_bytes INTEGER, dynamic_shared_bytes INTEGER, local_bytes INTEGER,
  bytes INTEGER, copy_kind INTEGER,-- copies, memsets; CUpti_ActivityMemcpyKind
  graph_node INTEGER
);

CREATE TABLE lost(                 -- what was not recorded
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id), thread INTEGER REFERENCES thread(id),
  records INTEGER,                 -- calls dropped
  texts INTEGER,                   -- names and strings dropped
  first_ns INTEGER, last_ns INTEGER,
  reason TEXT                      -- ring full | no ring | ring corrupt | disk | size limit
);

-- Recorded where the program has them: markers, tags, call stacks, windows, communication. A trace of an older acct lacks the tables.
CREATE TABLE range(                -- a stretch of time, or a moment, that the program named
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  thread INTEGER REFERENCES thread(id), -- in which it began; NULL: none is known (a copy on the device's time line)
  source TEXT NOT NULL,            -- nvtx | acct.h
  kind TEXT NOT NULL,              -- push (nested within its thread) | start (may overlap others, and end in another thread) | mark (a moment)
  domain TEXT, name TEXT,
  category TEXT, color INTEGER,    -- NULL: none; ARGB
  start_ns INTEGER, end_ns INTEGER -- end: NULL never ended; of a mark = start
);

CREATE TABLE tag(                  -- acct_tag: what the program says of some of its memory
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id), thread INTEGER REFERENCES thread(id),
  ns INTEGER, address INTEGER NOT NULL, bytes INTEGER NOT NULL,
  text TEXT                        -- a class (as alloc_class.class), or a name
);

CREATE TABLE stack(                -- call stacks, each once
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  depth INTEGER NOT NULL,          -- frames recorded
  cut INTEGER NOT NULL             -- 1: it was deeper
);

CREATE TABLE frame(
  stack INTEGER NOT NULL REFERENCES stack(id),
  depth INTEGER NOT NULL,          -- 0 the innermost
  address INTEGER,
  path TEXT, build_id TEXT, offset INTEGER, -- the file mapped there, and where in it; NULL: no file
  symbol TEXT, file TEXT, line INTEGER, -- NULL: not resolved (yet)
  PRIMARY KEY(stack, depth)
) WITHOUT ROWID;

CREATE TABLE op_stack(             -- whence an op was called
  op INTEGER PRIMARY KEY REFERENCES op(id),
  stack INTEGER NOT NULL REFERENCES stack(id)
);

CREATE TABLE window(               -- what of the run was recorded; no row: all of it
  id INTEGER PRIMARY KEY, process INTEGER REFERENCES process(id),
  start_ns INTEGER, end_ns INTEGER,-- NULL: from the first call, to the last
  why TEXT                         -- steps:10-20 | nvtx:NAME | cudaProfilerStart | size limit …
);

CREATE TABLE collective(           -- communication between devices; op.kind is collective
  op INTEGER PRIMARY KEY REFERENCES op(id),
  operation TEXT,                  -- all_reduce all_gather reduce_scatter broadcast reduce all_to_all gather scatter send receive
  count INTEGER, type TEXT,        -- elements as the call gave them: all_gather of each rank's part, reduce_scatter of the part received
  send INTEGER, receive INTEGER,   -- addresses; 0 or NULL: none
  communicator INTEGER, ranks INTEGER, rank INTEGER, -- handle; how many take part, this one's number; NULL: not known
  root INTEGER,                    -- of broadcast, reduce, gather, scatter; the peer of send and receive
  reduction TEXT                   -- sum product min max average; NULL: none
);

-- ==== analysed (rewritten by `acct analyze`; meta.analysis_version tells by which) =======================================
CREATE TABLE op_set(               -- what the views op_buffer and op_cost are made of: the rows that an op shares with others
  op INTEGER PRIMARY KEY REFERENCES op(id),
  buffers INTEGER NOT NULL,        -- rows of buffer_set; 0: none; -op: a set of its own, with rows that the trace's writer told
  cost INTEGER REFERENCES cost_set(cost), -- NULL: it has no row in op_cost
  step INTEGER                     -- NULL: in no step
);

CREATE TABLE buffer_set(           -- operands; ops of different steps that have the same ones share a set
  buffers INTEGER NOT NULL,
  slot TEXT NOT NULL,
  alloc INTEGER,                   -- one that lives to the end; NULL: none known, or
  before INTEGER,                  -- the op's id less the allocation's: the same in each step
  address INTEGER, bytes INTEGER, mode TEXT NOT NULL,
  PRIMARY KEY(buffers, slot)
) WITHOUT ROWID;

CREATE TABLE step(
  id INTEGER PRIMARY KEY,          -- from 0
  start_ns INTEGER, end_ns INTEGER,-- from the end of the step before (first step: its first op) to the end of its last op
  first_op INTEGER, last_op INTEGER,
  micro_batches INTEGER,
  tokens INTEGER,                  -- rows that the first GEMM of forward takes: tokens or samples; NULL not known
  complete INTEGER NOT NULL,       -- 0: cut off before its optimizer, or not recorded from its beginning (a window)
  device_start_ns INTEGER, device_end_ns INTEGER, -- the same by the device's times of its ops; NULL: some op has none
  found_by TEXT                    -- update (of parameters) | nvtx | acct.h (ranges that the program named; their times are the step's) |
                                   -- passes (inference: a pass over the weights) | repeats (no weights known: products of
                                   -- the same shapes come again; all of it is called forward) | one (nothing does, or it was cut off in its first step)
);

CREATE TABLE phase(
  step INTEGER NOT NULL REFERENCES step(id),
  name TEXT NOT NULL,              -- forward backward recompute optimizer
  micro_batch INTEGER NOT NULL,
  start_ns INTEGER, end_ns INTEGER, first_op INTEGER, last_op INTEGER,
  found_by TEXT                    -- rules | nvtx | acct.h
);

CREATE TABLE alloc_class(          -- a class for every byte of every allocation
  alloc INTEGER NOT NULL REFERENCES alloc(id),
  offset INTEGER NOT NULL, bytes INTEGER NOT NULL,
  from_ns INTEGER, until_ns INTEGER, -- NULL, NULL: the whole life of the allocation
  class TEXT NOT NULL,             -- param grad optimizer activation activation_grad input workspace temporary other unknown
  confidence REAL NOT NULL, rule TEXT NOT NULL
);

CREATE TABLE cost_set(             -- what ops cost; those that cost the same in the same phase of the same micro-batch share a row
  cost INTEGER PRIMARY KEY,
  phase TEXT, micro_batch INTEGER, -- NULL: in no step; phase 'evaluation' or NULL
  dtype TEXT,                      -- in which the products ran: fp32 tf32 bf16 …; complex and integer under their own name; of a launch:
                                   -- the type of most of its FLOPs, those of matrix instructions before others; NULL: none, or 6 or 4 bits
  flops INTEGER,                   -- the least; NULL: uncounted
  integer_ops INTEGER,             -- never added to FLOPs: of integer GEMMs; of a launch all integer instructions, of addresses too
  matmul INTEGER NOT NULL,         -- 1: a matrix product, or a launch with matrix instructions: counts for MFU
  bytes_read INTEGER, bytes_written INTEGER, -- the least, each operand once; of a launch: what it accesses in global memory
                                   -- (width * threads), or the extents that it reaches, each byte once, whichever is less
  grade TEXT NOT NULL,             -- exact sampled bound uncounted
  flops_most INTEGER,              -- = flops where these are exact; bound: no more than this; NULL: no upper bound, or uncounted
  matmul_flops INTEGER,            -- of flops, those of matrix products; NULL: uncounted
  matmul_flops_most INTEGER,       -- as flops_most
  price INTEGER REFERENCES price(id) -- of a launch; NULL: no launch
);

CREATE TABLE step_product(         -- matrix products of a step by what they are for (evaluation in none)
  step INTEGER NOT NULL REFERENCES step(id),
  part TEXT NOT NULL,              -- forward | input gradient | weight gradient: of products with weights; attention forward |
                                   -- attention backward: of two activations; recompute | recompute attention; optimizer;
                                   -- kernels: matrix instructions of launches; other: in no phase
  products INTEGER NOT NULL,       -- calls
  flops INTEGER,                   -- NULL: not known, or beyond 64 bits
  PRIMARY KEY(step, part)
) WITHOUT ROWID;

CREATE TABLE flops_term(           -- from 6·N·T to what a step executed; the terms but the last sum up to it exactly
  step INTEGER NOT NULL REFERENCES step(id),
  place INTEGER NOT NULL,          -- in order; terms that are 0 have no row
  term TEXT NOT NULL,              -- 6n (6n-matmul: only N of products is known) | lookup tables | position table | parameters in no product | first input gradient |
                                   -- input gradients | frozen weights | own kernels | other rows | attention forward | attention
                                   -- backward | recompute | recompute attention | optimizer | kernels | unexplained | executed
  flops INTEGER NOT NULL,
  PRIMARY KEY(step, place)
) WITHOUT ROWID;

CREATE TABLE model(                -- what the trace tells of the model, and how; of the last complete step
  fact TEXT PRIMARY KEY,           -- parameters in_products lookup position other tied frozen (elements) tokens attention (1, 0)
                                   -- layers heads head_size context sequences
  value INTEGER,                   -- NULL: not known
  how TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE op_sum(               -- rows of op_cost that are alike but for op, step and micro-batch, counted: for sums over a long run
  phase TEXT, kind TEXT NOT NULL,  -- op_cost.phase, op.kind
  api INTEGER, kernel INTEGER,     -- one of them: op.api where no kernel is known
  dtype TEXT, flops INTEGER, integer_ops INTEGER, matmul INTEGER NOT NULL, bytes_read INTEGER, bytes_written INTEGER,
  grade TEXT NOT NULL, flops_most INTEGER, matmul_flops INTEGER, matmul_flops_most INTEGER, price INTEGER,
  ops INTEGER NOT NULL,            -- how many
  timed INTEGER NOT NULL,          -- of these with a row in op_time
  busy_ns INTEGER                  -- theirs; NULL: none has a time
);

CREATE TABLE step_sum(             -- sums over op_cost by step, phase and dtype; unbounded, sampled, uncounted: ops
  step INTEGER, phase TEXT, dtype TEXT,
  matmul_flops INTEGER, matmul_flops_most INTEGER, matmul_unbounded INTEGER, matmul_sampled INTEGER, matmul_uncounted INTEGER,
  other_flops INTEGER, other_flops_most INTEGER, other_unbounded INTEGER, other_sampled INTEGER, other_uncounted INTEGER
);

CREATE TABLE call_sum(             -- rows of op, counted by kind
  kind TEXT PRIMARY KEY,           -- op.kind
  calls INTEGER NOT NULL,
  failed INTEGER NOT NULL          -- of these: status is not 0
) WITHOUT ROWID;

CREATE TABLE price(                -- what a launch costs by its kernel's PTX; launches that differ in nothing that matters share one
  id INTEGER PRIMARY KEY,
  kernel INTEGER REFERENCES kernel(id), -- NULL: not known
  grid_x INTEGER, grid_y INTEGER, grid_z INTEGER, block_x INTEGER, block_y INTEGER, block_z INTEGER,
  dynamic_shared_bytes INTEGER,
  grade TEXT NOT NULL,             -- exact: every path is decided by grid, block and scalars; sampled: counted on some blocks and scaled;
                                   -- bound: a branch depends on data, the truth lies between least and most; uncounted
  why TEXT,                        -- it is not exact
  blocks_counted INTEGER           -- sampled: on how many blocks it rests; else all of the grid; NULL: uncounted
);

CREATE TABLE price_count(          -- of a whole launch; counts that are 0 have no row
  price INTEGER NOT NULL REFERENCES price(id),
  count TEXT NOT NULL,             -- operations: fp64 fp32 fp16 bf16 tf32 fp8 other, matrix.fp64 … (matrix instructions, by the type of the factors),
                                   -- integer; bytes: loaded.global, stored.shared …; atomics, instructions: executed by threads
  least INTEGER NOT NULL,
  most INTEGER,                    -- NULL: no upper bound is known
  PRIMARY KEY(price, count)
) WITHOUT ROWID;

CREATE TABLE op_time(              -- the device's time for an op; an op without a row has none
  op INTEGER PRIMARY KEY REFERENCES op(id),
  start_ns INTEGER, end_ns INTEGER,-- first begin, last end
  busy_ns INTEGER,                 -- sum of its activities
  activities INTEGER               -- kernels, copies, memsets
);

CREATE TABLE op_piece(             -- activities that op_time does not tell one by one: of ops that have several, and of no recorded call
  activity INTEGER PRIMARY KEY REFERENCES activity(id),
  op INTEGER REFERENCES op(id)     -- NULL: none
);

-- ==== indexes, made when recording ends (a line each) ====================================================================
CREATE INDEX op_start ON op(start_ns);
CREATE INDEX alloc_address ON alloc(address);
CREATE INDEX alloc_class_alloc ON alloc_class(alloc);
CREATE INDEX range_start ON range(start_ns);

-- ==== views =============================================================================================================
CREATE VIEW op_buffer AS           -- what each op reads and writes
  SELECT s.op AS op,
         b.slot AS slot,           -- operand: A B C D bias aux a_scale … x y result dst src …, or the number of a kernel argument
         coalesce(b.alloc, s.op - b.before) AS alloc, -- alloc.id; NULL: no allocation known there
         b.address AS address, b.bytes AS bytes, -- extent from first to last byte touched; NULL: not known
         b.mode AS mode            -- r w rw ?
  FROM op_set s JOIN buffer_set b ON b.buffers = s.buffers;
CREATE TRIGGER op_buffer_insert INSTEAD OF INSERT ON op_buffer BEGIN -- the op gets a set of its own
  INSERT INTO buffer_set SELECT -new.op, slot, alloc, before, address, bytes, mode FROM buffer_set
    WHERE buffers = (SELECT buffers FROM op_set WHERE op = new.op AND buffers > 0);
  INSERT OR REPLACE INTO op_set SELECT new.op, -new.op, o.cost, o.step FROM (SELECT 1) LEFT JOIN op_set o ON o.op = new.op;
  INSERT INTO buffer_set VALUES(-new.op, new.slot, new.alloc, NULL, new.address, new.bytes, new.mode);
END;
CREATE VIEW op_cost AS             -- what each op cost, column by column from cost_set: a join could be no right side of a LEFT JOIN
  SELECT s.op AS op, s.step AS step,
         (SELECT phase FROM cost_set c WHERE c.cost = s.cost) AS phase,
         (SELECT micro_batch FROM cost_set c WHERE c.cost = s.cost) AS micro_batch,
         (SELECT dtype FROM cost_set c WHERE c.cost = s.cost) AS dtype,
         (SELECT flops FROM cost_set c WHERE c.cost = s.cost) AS flops,
         (SELECT integer_ops FROM cost_set c WHERE c.cost = s.cost) AS integer_ops,
         (SELECT matmul FROM cost_set c WHERE c.cost = s.cost) AS matmul,
         (SELECT bytes_read FROM cost_set c WHERE c.cost = s.cost) AS bytes_read,
         (SELECT bytes_written FROM cost_set c WHERE c.cost = s.cost) AS bytes_written,
         (SELECT grade FROM cost_set c WHERE c.cost = s.cost) AS grade,
         (SELECT flops_most FROM cost_set c WHERE c.cost = s.cost) AS flops_most,
         (SELECT matmul_flops FROM cost_set c WHERE c.cost = s.cost) AS matmul_flops,
         (SELECT matmul_flops_most FROM cost_set c WHERE c.cost = s.cost) AS matmul_flops_most,
         (SELECT price FROM cost_set c WHERE c.cost = s.cost) AS price
  FROM op_set s WHERE s.cost IS NOT NULL;
CREATE TRIGGER op_cost_insert INSTEAD OF INSERT ON op_cost BEGIN -- by hand: the sums are not its any more
  INSERT INTO cost_set SELECT NULL, new.phase, new.micro_batch, new.dtype, new.flops, new.integer_ops, new.matmul, new.bytes_read, new.bytes_written, new.grade, new.flops_most, new.matmul_flops, new.matmul_flops_most, new.price;
  INSERT OR REPLACE INTO op_set VALUES(new.op, coalesce((SELECT buffers FROM op_set WHERE op = new.op), 0),
    (SELECT max(cost) FROM cost_set), new.step);
  DELETE FROM op_sum;
  DELETE FROM step_sum;
END;
CREATE TRIGGER op_cost_update INSTEAD OF UPDATE ON op_cost BEGIN
  INSERT INTO cost_set SELECT NULL, new.phase, new.micro_batch, new.dtype, new.flops, new.integer_ops, new.matmul, new.bytes_read, new.bytes_written, new.grade, new.flops_most, new.matmul_flops, new.matmul_flops_most, new.price;
  UPDATE op_set SET cost = (SELECT max(cost) FROM cost_set), step = new.step WHERE op = old.op;
  DELETE FROM op_sum;
  DELETE FROM step_sum;
END;
CREATE TRIGGER op_cost_delete INSTEAD OF DELETE ON op_cost BEGIN
  UPDATE op_set SET cost = NULL, step = NULL WHERE op = old.op;
  DELETE FROM op_sum;
  DELETE FROM step_sum;
END;
CREATE VIEW op_named AS
  SELECT op.id, api.library, api.name, op.kind, op.act, op.device, op.stream, op.start_ns, op.end_ns, op.status, op.bytes, op.object
  FROM op LEFT JOIN api ON api.id = op.api;
CREATE VIEW op_summary AS
  SELECT api.name AS name, op.kind AS kind, count(*) AS calls, sum(op.status <> 0) AS failed,
         sum(op.end_ns - op.start_ns) AS host_ns, sum(op.bytes) AS bytes,
         CASE WHEN total(c.flops) < 9.2e18 THEN (sum(c.flops >> 32) << 32) + sum(c.flops & 4294967295) -- exact
              ELSE total(c.flops) END AS flops -- a long run's sum does not fit in 64 bits: a double
  FROM op LEFT JOIN api ON api.id = op.api LEFT JOIN op_cost c ON c.op = op.id GROUP BY api.name, op.kind;
CREATE VIEW step_flops AS
  SELECT step, phase, micro_batch, dtype, sum(matmul_flops) AS matmul_flops,
         sum(flops - matmul_flops) AS other_flops, sum(flops IS NULL AND integer_ops IS NULL) AS uncounted_ops,
         sum(flops_most - flops) AS uncertain_flops, sum(flops_most IS NULL AND flops IS NOT NULL) AS unbounded_ops
  FROM op_cost WHERE step IS NOT NULL GROUP BY step, phase, micro_batch, dtype;
CREATE VIEW roofline AS            -- each op that took device time: what it did, how fast; peaks are in device or a data sheet
  SELECT c.op AS op, c.step AS step, c.phase AS phase, coalesce(k.demangled, k.name, api.name) AS name, op.kind AS kind,
         c.dtype AS dtype, c.grade AS grade, c.flops AS flops, c.bytes_read + c.bytes_written AS bytes,
         1.0 * c.flops / nullif(c.bytes_read + c.bytes_written, 0) AS intensity, -- FLOPs a byte
         t.busy_ns AS busy_ns, 1e9 * c.flops / nullif(t.busy_ns, 0) AS flops_per_s,
         1e9 * (c.bytes_read + c.bytes_written) / nullif(t.busy_ns, 0) AS bytes_per_s
  FROM op_cost c JOIN op ON op.id = c.op JOIN op_time t ON t.op = c.op LEFT JOIN api ON api.id = op.api
  LEFT JOIN launch l ON l.op = c.op LEFT JOIN kernel k ON k.id = l.kernel;
CREATE VIEW memory_by_class AS     -- bytes of each class over the whole run, device memory
  SELECT c.class AS class, count(DISTINCT c.alloc) AS allocations, sum(c.bytes) AS bytes
  FROM alloc_class c JOIN alloc a ON a.id = c.alloc WHERE a.memory IN ('device', 'async') GROUP BY c.class;
CREATE VIEW step_memory AS         -- device bytes live at some time of a step, by class
  SELECT s.id AS step, c.class AS class, sum(c.bytes) AS bytes
  FROM step s JOIN alloc a ON a.alloc_ns <= s.end_ns AND (a.free_ns IS NULL OR a.free_ns >= s.start_ns)
  JOIN alloc_class c ON c.alloc = a.id
  WHERE a.memory IN ('device', 'async') AND (c.from_ns IS NULL OR c.from_ns <= s.end_ns) AND (c.until_ns IS NULL OR c.until_ns > s.start_ns)
  GROUP BY s.id, c.class;
