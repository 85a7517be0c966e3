"""Cases from the field that `acct plan` can be asked: the right answers, by number and kind of the list of cases."""
from fractions import Fraction
import pytest
from plan_words import plan, refused

# ---- plan flops: flops/*, bytes/*, overflow/*, integer/* -----------------------------------------------------------------------


def flops(*words):
    return plan('flops', *words)


def test_case_1_transposed_convolution():
    """Each input position meets the whole filter; the backward costs twice that. 500 iterations: 500 times, not 1 + 2 + …"""
    words = 'convtranspose --input 6,192,30,96 --out-channels 384 --kernel 2,2 --stride 2'.split()
    assert flops(*words).value('flops') == 10192158720 and flops(*words, '--pass', 'backward').value('flops') == 20384317440
    assert 500 * flops(*words).value('flops') == 5096079360000


def test_case_3_groups_are_divided_out_once():
    words = 'conv --input 1,64,56,56 --out-channels 128 --kernel 3 --padding 1 --groups 4'.split()
    both = flops(*words, '--pass', 'both')
    assert flops(*words).value('flops') == 115605504 and [p['flops'] for p in both['parts']] == [115605504] * 3
    assert both['operands'][1]['shape'] == '128,16,3,3'
    assert flops(*words[:-1], '1').value('flops') == 4 * 115605504
    assert flops(*'conv --input 1,32,112,112 --out-channels 32 --kernel 3 --padding 1 --groups 32'.split()).value('flops') == 7225344


def test_case_4_the_output_is_not_divided_by_the_stride_again():
    s = flops(*'conv --input 32,3,224,224 --out-channels 64 --kernel 7 --stride 2 --padding 3'.split())
    assert s.value('flops') == 7552892928 and s.value('output') == '32,64,112,112'


def test_case_5_a_first_layer_s_input_has_no_gradient():
    """The stem of ResNet-18 at batch 10: its input gradient is not computed."""
    words = 'conv --input 10,3,224,224 --out-channels 64 --kernel 7 --stride 2 --padding 3'.split()
    assert flops(*words, '--pass', 'backward').value('flops') - flops(*words, '--pass', 'backward', '--grads', 'weight').value('flops') == 2360279040


def test_cases_6_7_8_attention():
    assert flops('attention', 2, 5, 9, 4).value('flops') == 12960 and flops('matmul', '9,4', '4,9').value('flops') == 648
    assert flops('attention', '1,12,64,64').value('flops') == 12582912
    q = '16,559,16,64'
    assert flops('attention', q, '--layout', 'bshd').value('flops') == 20478754816 and flops('attention', q, '--layout', 'bshd', '--causal', 'half').value('flops') == 10239377408
    assert flops('attention', q).value('flops') == 586153984                                   # read as B,H,S,D: heads and sequence swapped


@pytest.mark.parametrize('seq,full', [(8192, 422212465065984), (129024, 104735.08e12)])
def test_case_10_full_or_half_attention(seq, full):
    """llama2-7b: 32 layers, 32 heads of 128; 6 N per token and 12 B L S² H D, halved with a causal mask. The convention is named."""
    layer = lambda *w: flops('attention', 4, 32, seq, 128, '--pass', 'both', *w)
    assert 32 * layer().value('flops') == pytest.approx(full, rel=1e-7 if seq > 8192 else 0) and 64 * layer('--causal', 'half').value('flops') == 32 * layer().value('flops')
    if seq == 8192:
        assert 32 * layer('--causal', 'half').value('flops') == 211106232532992
        weights = sum(n * flops('linear', 4 * seq, i, o, '--pass', 'both').value('flops') for n, i, o in [(32 * 4, 4096, 4096), (32 * 3, 4096, 11008), (1, 4096, 32000)])
        assert weights == 1299004268740608
    assert layer()['convention'] != layer('--causal', 'half')['convention'] and 'halved' in layer('--causal', 'half')['convention']


def test_case_11_a_lookup_multiplies_nothing():
    assert flops('embedding', 1, 50257, 768).value('flops') == 0
    assert flops('linear', 1, 768, 50304).value('flops') == 2 * 50304 * 768 == 77266944


def test_case_12_a_shared_weight_costs_by_its_use():
    assert 3 * flops('linear', 1, 100, 100).value('flops') == 60000


def test_case_13_broadcast_vectors_bias():
    """MACs: elements of the result times what is contracted."""
    assert [flops('matmul', a, b).value('flops') // 2 for a, b in (('8', '8'), ('4,8', '8'), ('2,1,4,8', '3,8,5'))] == [8, 32, 960]
    s = flops('linear', 4, 8, 16, '--bias')
    assert s.value('flops') == 1024 and s.value('flops') + s.value('bias_flops') == 1088       # without, and with the additions


def test_case_14_every_size_counts():
    assert flops('matmul', 25, 9, 16).value('flops') == 7200 == flops('matmul', '25,16', '16,9').value('flops')


def test_case_15_complex():
    for dtype in ('complex64', 'complex128'):
        assert flops('gemm', 1024, 1024, 1024, '--dtype', dtype).value('flops') == 8589934592


def test_case_16_grouped():
    rows = [4, 1026, 1799, 166, 694, 753, 0, 16, 0, 240, 1119, 19, 6, 0, 46, 659, 10, 0, 112, 808, 181, 0, 28, 22, 90, 0, 176, 0, 37, 5, 10, 22]
    s = flops('grouped', *[f'{m},4096,2048' for m in rows])
    assert s.value('flops') == 135023034368 == 2 * sum(rows) * 4096 * 2048 and sum(rows) == 8048
    assert s['parts'][6]['flops'] == 0 and s['parts'][6]['bytes'] == 0                         # a group without rows
    assert flops('grouped', '2,3,4,5', '6,7,8').value('flops') == 5 * 48 + 672


def test_case_17_a_stride_of_0_is_one_matrix():
    s = flops('gemm', 64, 64, 64, '--batch', 100, '--batch-stride', '4096,0,4096')
    assert s.value('flops') == 52428800 and s.value('bytes') == 3293184


@pytest.mark.parametrize('words,moved', [((0, 100, 100), 0), ((100, 100, 100, '--batch', 0), 0), ((100, 100, 0, '--beta', 0.5), 80000), ((100, 100, 0, '--beta', 1), 0), ((100, 100, 0), 40000)])
def test_case_18_nothing_is_a_count_too(words, moved):
    s = flops('gemm', *words, '--device', 'h100-sxm')
    assert s.value('flops') == 0 and s.value('bytes') == moved and s.value('time') == moved / 3350e9


def test_case_19_c_is_read_where_beta_is_not_0():
    assert flops('gemm', 1000, 500, 200).value('bytes') == 3200000 and flops('gemm', 1000, 500, 200, '--beta', 2).value('bytes') == 5200000
    s = flops('gemm', 1000, 500, 200, '--beta', 'device')
    assert s.value('bytes') == 5200000 and 'bound' in ' '.join(s['notes'])


def test_cases_20_and_23_nothing_wraps():
    assert [flops('linear', 4096, 768, n).value('flops') // 2 + n for n in (2304, 768)] == [7247759616, 2415919872]   # the report has the bias in, once
    assert flops('gemm', 4194304, 4194304, 4194304).value('flops') == 2 ** 67
    assert plan('view', '--shape', '64,4,32,512,512', '--dtype', 'fp16').value('bytes') == 4294967296


def test_case_24_integer_products_are_operations():
    for device, peak in (('a100-80', 624e12), ('h100-sxm', 1978.9e12)):
        s = flops('gemm', 4096, 4096, 4096, '--dtype', 'int8', '--device', device)
        assert s.value('flops') == 0 and s.value('integer_ops') == 137438953472 and s['results']['integer_ops']['unit'] == 'OP'
        assert s['inputs']['peak']['value'] == peak and s.value('time') == pytest.approx(137438953472 / peak) and s['operands'][2]['dtype'] == 'int32'


# ---- mfu: acct plan train -------------------------------------------------------------------------------------------------------

def train(*words):
    return plan('train', *words)


def test_case_25_sparsity_peak():
    """420 TFLOP/s on an H200 and 480 on an H100 SXM are 42.4 % and 48.5 % of the dense peak; 1979 is the figure of sparse matrices."""
    assert abs(train('--flops', '420e12', '--time', '1s', '--device', 'h200').value('mfu') - 0.424) < 6e-4
    assert abs(train('--flops', '480e12', '--time', '1s', '--device', 'h100-sxm').value('mfu') - 0.485) < 5e-4


def test_case_26_a_real_log_of_the_rtx_5090():
    """N 124475904, 12 layers of 768, context 1024; 524288 tokens in 2575.63 ms, counted as llm.c does."""
    s = train('--model', 'layers=12,dim=768,heads=12,seq=1024,vocab=50304', '--convention', 'causal', '--tokens', '524288', '--time', '2575.63ms', '--gpus', '1', '--device', 'rtx5090')
    assert s['inputs']['params']['value'] == 124475904 and s.value('flops_per_token') == 803478528 and s.value('flops') == 421254150488064
    assert round(s.value('flops_per_s') / 1e12, 2) == 163.55 and round(100 * s.value('mfu'), 2) == 78.07


def test_case_29_tf32_and_bf16_peak():
    """400 TFLOP/s: 40.4 % of bf16's peak, 80.9 % of tf32's."""
    for dtype, share in (('bf16', 40.4), ('tf32', 80.9)):
        assert round(100 * train('--flops', '400e12', '--time', '1s', '--device', 'h100-sxm', '--dtype', dtype).value('mfu'), 1) == share


def test_case_30_two_peaks_in_one_step():
    """6e15 FLOPs in fp8 and 2e15 in bf16 in 10 s: 0.5053 by the time at their peaks; 0.8085 of bf16's alone."""
    s = train('--flops', 'fp8=6e15,bf16=2e15', '--peak-tflops', 'fp8=1979,bf16=989.5', '--time', '10s')
    assert abs(s.value('mfu') - (6e15 / 1979e12 + 2e15 / 989.5e12) / 10) < 1e-12 and round(s.value('mfu'), 4) == 0.5053 and 'sum of FLOPs / peak' in ' '.join(s['notes'])
    assert round(train('--flops', 'fp8=6e15,bf16=2e15', '--device', 'h100-sxm', '--time', '10s').value('mfu'), 4) == 0.5053
    assert round(train('--flops', '8e15', '--peak-tflops', '989.5', '--time', '10s').value('mfu'), 4) == 0.8085


def test_case_31_an_unknown_gpu():
    """No peak is guessed: FLOP/s are printed, the MFU is not known; A10 is not A100."""
    assert 'A2000' in refused('train', '--params', '1e9', '--tokens', '1e6', '--time', '1s', '--gpus', '1', '--device', 'NVIDIA RTX A2000 12GB')
    s = train('--params', '1e9', '--tokens', '1e6', '--time', '1s', '--gpus', '1')
    assert s.value('flops_per_s') == 6e15 and s.value('mfu') is None and 'peak unknown' in s.formula('mfu')
    assert train('--flops', '1e15', '--device', 'NVIDIA A10')['inputs']['peak']['value'] == 125e12


def test_case_32_recomputation_is_in_hfu_alone():
    """ResNet-18: forward 36271226880 of which 33910947840 run again, backward 70182174720, the last layer 30720000."""
    model, again = 36271226880 + 70182174720 + 30720000, 33910947840
    s = train('--flops', model, '--recompute', again, '--time', '10ms', '--device', 'h100-sxm')
    assert model == 106484121600 and s.value('executed_flops') == 140395069440 and round(s.value('executed_over_model'), 4) == 1.3185
    assert abs(s.value('hfu') / s.value('mfu') - 140395069440 / 106484121600) < 1e-12


def test_case_33_all_micro_batches_of_a_step():
    """2097152 tokens a step in 2.0 s: 1048576 tokens/s."""
    s = train('--params', '1e9', '--tokens', '2097152', '--time', '2.0')
    assert s.value('tokens_per_s') == 1048576 and s.value('flops') == 6 * 10**9 * 2097152


def test_case_34_the_rate_of_a_step():
    assert round(train('--params', '1e9', '--tokens', '524288', '--time', '2.49463s').value('tokens_per_s')) == 210167


def test_case_35_megatron_s_throughput():
    """24 layers of 2048, feed-forward 8192 SwiGLU, vocabulary 50304, context 4096, 1008 sequences on 252 GPUs in 1457.9 ms."""
    s = train('--model', 'layers=24,dim=2048,heads=16,seq=4096,vocab=50304,ff=8192,gated=yes,bias=no,norm=rms,position=rotary', '--convention', '6n-matmul+attention',
              '--tokens', 1008 * 4096, '--time', '1457.9ms', '--gpus', '252', '--device', 'h100-sxm')
    B, n, L, h, ff, V = 1008, 4096, 24, 2048, 8192, 50304
    formula = 12 * B * n * L * h**2 * ((1 + 1 + Fraction(n, h)) + Fraction(3, 2) * Fraction(ff, h) + Fraction(V, 2 * L * h))
    assert s.value('flops') == formula == 52425985722679296 and round(s.value('flops_per_s_per_gpu') / 1e12, 3) == 142.698
