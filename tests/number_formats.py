"""The number formats of the sample app, in numpy, from their definitions: bits to doubles and back.

Rounding is to nearest, ties to even. Numbers too large become infinity, or with fp8 the largest number, as casts of
tensors do. UNIT_ROUNDOFF: half the distance of neighbours, relative to the number, where it is normal."""
import numpy as np

# enum number_format and enum dtype_choice of the sample app
FP32, BF16, FP16, E4M3, E5M2 = range(5)
DTYPES = ('fp32', 'tf32', 'bf16', 'fp16', 'fp8')
BITS = {FP32: np.uint32, BF16: np.uint16, FP16: np.uint16, E4M3: np.uint8, E5M2: np.uint8}
UNIT_ROUNDOFF = {FP32: 2.0**-24, 'tf32': 2.0**-11, BF16: 2.0**-8, FP16: 2.0**-11, E4M3: 2.0**-4, E5M2: 2.0**-3}
SMALLEST = {FP32: 2.0**-149, BF16: 2.0**-133, FP16: 2.0**-24, E4M3: 2.0**-9, E5M2: 2.0**-16}  # number above 0
LARGEST = {E4M3: 448.0, E5M2: 57344.0}


def fp8_numbers(fmt):
    """The finite numbers from 0 on, by code: 126 + 1 of E4M3, which has no infinity; 123 + 1 of E5M2."""
    mantissa, bias, count = (3, 7, 127) if fmt == E4M3 else (2, 15, 124)
    code = np.arange(count)
    exponent, fraction = code >> mantissa, (code & (1 << mantissa) - 1) / 2.0**mantissa
    return np.where(exponent == 0, fraction * 2.0**(1 - bias), (1 + fraction) * 2.0**(exponent - bias))


def decode(bits, fmt):
    if fmt == FP32:
        return bits.view(np.float32).astype(np.float64)
    if fmt == BF16:
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if fmt == FP16:
        return bits.view(np.float16).astype(np.float64)
    table = np.full(128, np.nan)
    numbers = fp8_numbers(fmt)
    table[:len(numbers)] = numbers
    if fmt == E5M2:
        table[124] = np.inf
    return np.where(bits & 0x80, -1.0, 1.0) * table[bits & 0x7f]


def encode(x, fmt):
    """x: doubles; for bf16 and fp8 such as are floats (nothing is rounded twice)."""
    x = np.asarray(x, np.float64)
    with np.errstate(over='ignore', invalid='ignore'):
        if fmt == FP32:
            return x.astype(np.float32).view(np.uint32)
        if fmt == FP16:
            return x.astype(np.float16).view(np.uint16)
        if fmt == BF16:
            bits = x.astype(np.float32).view(np.uint32)
            rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
            return np.where(np.isnan(x), 0x7fc0, rounded).astype(np.uint16)
    numbers = fp8_numbers(fmt)
    size = np.minimum(np.where(np.isnan(x), 0, np.abs(x)), numbers[-1])
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)  # numbers[above - 1] < size <= numbers[above]
    low, high = size - numbers[above - 1], numbers[above] - size
    code = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return np.where(np.isnan(x), 0x7f, code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)
