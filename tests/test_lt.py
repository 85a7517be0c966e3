"""cuBLASLt in the books: what its opaque descriptors say is in the trace. The descriptors are the vendor's own library's; its
functions that need a device are answered by support/fake_lt.c. Expected values are the numbers in programs/preload_lt.c."""
import os
import pytest
from conftest import BUILD, TOP, run
from test_preload import LIB, Trace, fake, listing  # noqa: F401 (fixtures)

CUDA_LIB = next((l.split(':=')[1].strip() for l in open(os.path.join(BUILD, 'deps.mk')) if l.startswith('CUDA_LIB ')), '')
A, B, C, D, BIAS, AUX, SCALES, SPACE = (i << 12 for i in (1, 2, 3, 4, 5, 6, 7, 9))


@pytest.fixture(scope='module')
def go(fake, tmp_path_factory):
    """go(args, env) → trace of preload_lt."""
    d = tmp_path_factory.mktemp('lt')
    r = run('cc', '-shared', '-fPIC', '-o', d / 'fake_lt.so', os.path.join(TOP, 'tests', 'support', 'fake_lt.c'))
    assert r.returncode == 0, r.stderr

    def it(*args, **env):
        out = d / f't{len(list(d.iterdir()))}.db'
        r = run(os.path.join(BUILD, 'tests', 'preload_lt'), *args,
                env={'LD_LIBRARY_PATH': f'{fake}:{CUDA_LIB}', 'LD_PRELOAD': f'{LIB}:{d}/fake_lt.so', 'ACCT_OUTPUT': str(out), **env})
        assert r.returncode == 0 and r.stderr == ''
        return Trace(out)
    return it


@pytest.fixture(scope='module')
def lt(go):
    return go(FAKE_NEST='1')


@pytest.fixture
def rows(lt):
    """Rows of gemm in the order of the program, those of cublasLtMatmul."""
    return lt.rows("select g.*, o.stream, o.status, n.name, n.library from gemm g join op o on o.id = g.op join op_named n on n.id = o.id "
                   "where n.library = 'cublasLt' order by g.id")


def pick(row, names):
    return tuple(row[n] for n in names.split())


PLAIN, FORMATS, EPILOGUES, ORDERS, BATCHES, MODES = range(0, 4), range(4, 10), range(10, 24), range(24, 30), range(30, 32), range(32, 36)


def test_every_product_is_a_row(lt, rows):
    assert len(rows) == 36 and {r['name'] for r in rows} == {'cublasLtMatmul'} and {r['status'] for r in rows} == {0}
    assert lt.lost() == 0


def test_plain_products(rows):
    where = 'a b c d lda ldb ldc ldd'
    shape = 'trans_a trans_b m n k batch stride_a stride_b stride_c stride_d'
    for i in PLAIN:
        assert pick(rows[i], shape) == ('N', 'N', 2, 3, 4, 1, None, None, None, None)
        assert pick(rows[i], 'a_type b_type compute math_mode pointer_array epilogue bias aux a_scale') == ('fp32', 'fp32', 'fp32', 0, 0, None, 0, 0, 0)
    assert pick(rows[0], where) == (A, B, C, D, 5, 6, 7, 8)
    assert pick(rows[0], 'alpha beta c_type d_type stream algo workspace workspace_bytes') == ('one', 'zero', 'fp32', 'fp32', 0x66, None, 0, None)
    # in place; the algorithm's id; the workspace
    assert pick(rows[1], where) == (A, B, C, 0, 5, 6, 7, None)
    assert pick(rows[1], 'alpha beta d_type algo workspace workspace_bytes stream') == ('value', 'one', None, 21, SPACE, 12345, 0)
    # the same address with another leading dimension is a matrix of its own
    assert pick(rows[2], where) == (A, B, C, C, 5, 6, 7, 8)
    assert pick(rows[3], where) == (A, B, 0, D, 5, 6, None, 8) and rows[3]['c_type'] is None


def test_number_formats_and_scales(rows):
    f = [rows[i] for i in FORMATS]
    types = 'a_type b_type c_type d_type compute bias_type'
    assert pick(f[0], 'trans_a trans_b m n k lda ldb ldc ldd') == ('T', 'N', 32, 48, 16, 16, 16, 32, 32)
    assert pick(f[0], types) == ('fp8_e4m3', 'fp8_e5m2', 'bf16', 'bf16', 'fp32', 'bf16')
    assert pick(f[1], types) == ('fp8_e4m3', 'fp8_e5m2', 'fp32', 'fp32', 'fp32', 'bf16')
    assert pick(f[2], types) == ('fp8_e4m3', 'fp8_e5m2', 'bf16', 'fp8_e4m3', 'fp32', 'bf16')
    assert pick(f[4], types) == ('fp16', 'fp16', 'fp16', None, 'fp16', None) and pick(f[4], 'alpha beta') == ('one', 'zero')
    assert pick(f[5], types) == ('fp32', 'fp32', 'fp32', 'fp32', 'fp32_fast_tf32', None)
    scales = 'a_scale b_scale c_scale d_scale amax_d a_scale_mode b_scale_mode'
    assert pick(f[0], scales) == (SCALES, SCALES + 4, 0, 0, 0, 'scalar', 'scalar')
    assert pick(f[2], scales) == (SCALES, SCALES + 4, SCALES + 8, SCALES + 12, SCALES + 16, 'scalar', 'scalar')
    assert pick(f[3], scales) == (SCALES, SCALES + 4, SCALES + 8, SCALES + 12, SCALES + 16, 'outer_vec', 'vec32')
    assert pick(f[4], scales) == (0, 0, 0, 0, 0, None, None)
    assert all(pick(r, 'd_out_scale d_out_scale_mode aux_scale amax_aux') == (0, None, 0, 0) for r in f)


def test_epilogues(rows):
    """Bias: 24 elements, one a row of D; bias gradient of B: 16, one a column. Aux: leading dimension 128 bits or 40 elements."""
    bias, columns, none = (BIAS, 24, None, 'bf16'), (BIAS, 16, None, 'bf16'), (0, None, None, None)
    mask, gelu, no_aux = (AUX, 128, None, None), (AUX, 40, None, 'bf16'), (0, None, None, None)
    expected = [('RELU', none, no_aux), ('RELU_AUX', none, mask), ('RELU_BIAS', bias, no_aux), ('RELU_AUX_BIAS', bias, mask),
                ('DRELU', none, mask), ('DRELU_BGRAD', bias, mask), ('GELU', none, no_aux), ('GELU_AUX', none, (AUX, 40, None, 'fp16')),
                ('GELU_BIAS', (BIAS, 24, None, 'fp32'), no_aux), ('GELU_AUX_BIAS', bias, gelu), ('DGELU', none, gelu),
                ('DGELU_BGRAD', bias, gelu), ('BGRADA', bias, no_aux), ('BGRADB', columns, no_aux)]
    got = [(rows[i]['epilogue'], pick(rows[i], 'bias bias_length stride_bias bias_type'), pick(rows[i], 'aux ldaux stride_aux aux_type'))
           for i in EPILOGUES]
    assert got == expected


def test_row_major_is_the_transposed_product(rows):
    o = [rows[i] for i in ORDERS]
    shape, where = 'trans_a trans_b m n k', 'a b c d lda ldb ldc ldd a_type b_type'
    for r in o[:3]:
        assert pick(r, shape) == ('N', 'N', 3, 2, 4)
        assert pick(r, where) == (B, A, C, D, 11, 10, 12, 12, 'bf16', 'fp16')
    assert (o[0]['beta'], o[0]['epilogue']) == ('one', None)
    assert pick(o[1], 'epilogue bias bias_length') == ('BGRADB', BIAS, 2)   # of what was A, now the second factor
    assert pick(o[2], 'epilogue bias bias_length') == ('BIAS', BIAS, 2)     # one for each row of the 2×3 result
    assert pick(o[3], shape) == ('T', 'T', 2, 3, 4) and pick(o[3], where) == (A, B, C, D, 10, 13, 14, 14, 'fp16', 'bf16')
    assert pick(o[4], shape) == ('T', 'N', 3, 2, 4) and pick(o[4], where) == (B, A, C, D, 16, 15, 12, 12, 'bf16', 'fp16')
    assert pick(o[5], shape) == ('N', 'T', 32, 32, 32) and pick(o[5], 'lda ldb ldc ldd a_type compute') == (None,) * 4 + ('int8', 'int32')


def test_batches(rows):
    strided, pointers = (rows[i] for i in BATCHES)
    assert pick(strided, 'batch stride_a stride_b stride_c stride_d stride_bias stride_aux pointer_array') == (5, 0, 1000, 2000, 2000, 24, 640, 0)
    assert pick(pointers, 'batch stride_a stride_b stride_c stride_d pointer_array') == (6, None, None, None, None, 1)


def test_scalars_on_the_device_are_not_read(rows):
    assert [pick(rows[i], 'alpha beta') for i in MODES] == [('device', 'device'), ('device', 'device'), ('device', 'zero'), ('device', 'one')]


def test_transforms(lt):
    t = lt.rows("select b.*, o.stream from blas b join op o on o.id = b.op where routine = 'transform' order by op")
    assert len(t) == 3 and all(r['stream'] == 0x77 for r in t)
    shape, where = 'type a_type b_type m n batch trans_a trans_b alpha beta', 'a b c lda ldb ldc stride_a stride_b stride_c'
    # A lies by rows: as columns it is its transpose, 30 × 20 with a leading dimension of 33
    assert pick(t[0], shape) == ('fp32', 'fp32', None, 20, 30, 1, 'T', None, 'one', 'zero') and pick(t[0], where) == (A, 0, C, 33, None, 22, None, None, None)
    assert pick(t[1], shape) == ('int8', 'fp32', None, 20, 30, 3, 'N', None, 'value', 'zero')
    assert pick(t[1], where) == (A, 0, C, 22, None, 20, 800, None, 700)
    assert pick(t[2], shape) == ('fp32', 'fp32', 'fp32', 20, 30, 1, 'N', 'T', 'one', 'value') and pick(t[2], where) == (A, B, C, 22, 31, 22, None, None, None)


def test_a_product_inside_a_recorded_call_is_not_booked_again(lt):
    """cublasSgemm comes by way of cublasLtMatmul here, as it does in the vendor's cuBLAS: one op, with no fields of cuBLASLt."""
    assert [r['name'] for r in lt.rows("select name from op_named where kind in ('gemm', 'blas') order by id desc limit 2")] == ['cublasSgemm_v2', 'cublasLtMatrixTransform']
    [g] = lt.rows("select g.* from gemm g join op_named o on o.id = g.op where o.name = 'cublasSgemm_v2'")
    assert pick(g, 'd ldd stride_d d_type epilogue bias bias_length aux workspace workspace_bytes a_scale a_scale_mode') == \
        (0, None, None, None, None, 0, None, 0, 0, None, 0, None)


def test_a_failed_product_is_not_looked_into(go):
    t = go('failing', FAKE_FAIL='cublasLtMatmul')
    [g] = t.rows('select g.*, o.status from gemm g join op o on o.id = g.op')
    assert pick(g, 'status a b c d workspace workspace_bytes') == (15, A, B, C, D, SPACE, 12345)
    assert pick(g, 'm n k batch alpha beta a_type compute lda ldd epilogue') == (None,) * 11
