#!/usr/bin/env python3
"""Makes the wrappers of libacct.so: signatures from the vendor's headers (clang's AST), meaning from api.table.

    gen_wrappers.py --clang CLANG --include DIR --table api.table --out DIR

writes api.h (numbers), wrap_cudart.c, wrap_cublas.c, wrap_cublasLt.c, api_names.c and libacct.map (export list). `--list` prints what became
of every function of the headers instead: one line `library name action`, which the coverage test reads."""
import argparse, json, os, re, subprocess, sys, tempfile

# Library: its headers, each with what the names in it begin with.
HEADERS = {'cudart': [('cuda_runtime_api.h', 'cuda'), ('preload/launch_stubs.h', '__cuda')], 'cublas': [('cublas_api.h', 'cublas')],
           'cublasLt': [('cublasLt.h', 'cublasLt')]}
FEWEST = {'cudart': 300, 'cublas': 500, 'cublasLt': 40}  # functions of a header that was read right
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ERRORS = {'cudaError_t': 'cudaErrorSharedObjectSymbolNotFound', 'cublasStatus_t': 'CUBLAS_STATUS_NOT_SUPPORTED'}
# What C++ headers alone declare: opaque here, for only addresses of it pass through.
OPAQUE = {'__half': 'struct acct_half', '__nv_bfloat16': 'struct acct_bfloat16'}


class Function:
    def __init__(self, library, name, result, params):
        self.library, self.name, self.result, self.params = library, name, result, params  # params: [(type, name)]
        self.types = {n: t for t, n in params}

    def has(self, name):
        return name in self.types


def parse_header(clang, include, header, prefix):
    """All functions of a header: {name: (result, [(type, name)])}. As C++, where the vendor declares more of them."""
    with tempfile.NamedTemporaryFile('w', suffix='.cc') as f:
        f.write(f'#include <{header}>\n')
        f.flush()
        r = subprocess.run([clang, '-x', 'c++', '-isystem', include, '-I', TOP, '-Xclang', '-ast-dump=json', '-Xclang',
                            f'-ast-dump-filter={prefix}', '-fsyntax-only', f.name], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f'gen_wrappers: {clang} cannot read {header}:\n{r.stderr}')
    found, decoder, at = {}, json.JSONDecoder(), 0
    while (at := r.stdout.find('{', at)) >= 0:
        node, at = decoder.raw_decode(r.stdout, at)
        name = node.get('name', '')
        if node['kind'] == 'FunctionDecl' and name.startswith(prefix) and node.get('mangledName') == name:
            if node.get('storageClass') == 'static' or node.get('inline'):
                continue
            params = [(p['type']['qualType'], p.get('name', f'arg{i}')) for i, p in
                      enumerate(q for q in node.get('inner', []) if q['kind'] == 'ParmVarDecl')]
            found.setdefault(name, (node['type']['qualType'].split('(')[0].strip(), params))
    return found


def per_thread_names(include):
    """Runtime functions that have a second symbol for per-thread default streams: {name: suffix}."""
    text = open(os.path.join(include, 'cuda_runtime_api.h')).read()
    names = {'cudaLaunchKernel': '_ptsz'}  # which the header does by an inline function
    names.update((n, '_' + m.lower()) for n, m in re.findall(r'#\s*define\s+(cuda\w+)\s+__CUDART_API_(PTSZ|PTDS)\(', text))
    if len(names) < 2:
        sys.exit('gen_wrappers: the per-thread names in cuda_runtime_api.h are not written as expected')
    return names


def read_table(path):
    rows = []
    for n, line in enumerate(open(path), 1):
        if line.strip() and not line.startswith('#'):
            f = line.split(None, 2)
            if len(f) != 3 or f[0] not in HEADERS:
                sys.exit(f'{path}:{n}: expected LIBRARY PATTERN ACTION')
            rows.append((f[0], re.compile(f[1]), f[2].strip(), n))
    return rows


def action_of(rows, library, name):
    return next((a for l, p, a, _ in rows if l == library and p.fullmatch(name)), None)


# ---- arguments that follow from the parameter names of cuBLAS ---------------------------------------------------------------
def pick(f, *names):
    """The first of `names` that the function has, else None."""
    return next((n for n in names if f.has(n)), None)


DTYPE = {'float': 'FP32', 'double': 'FP64', 'cuComplex': 'COMPLEX64', 'cuDoubleComplex': 'COMPLEX128', '__half': 'FP16',
         '__nv_bfloat16': 'BF16', 'unsigned char': 'UINT8', 'int': 'INT32', 'int64_t': 'OTHER'}


def base_type(t):
    return re.sub(r'\b(const|struct)\b|\*', '', t).strip()


def type_of(f, operand):
    """C expression for an operand's element type: its own ...type parameter, or what it points to."""
    stem = re.sub('(array|Array)$', '', operand)
    p = pick(f, stem + 'type', stem + 'Type')
    if p:
        return f'blas_dtype((int){p})'
    base = base_type(f.types[operand])
    if base not in DTYPE:
        sys.exit(f'gen_wrappers: {f.name}: element type of {operand} ({f.types[operand]}) is not known')
    return 'ACCT_dtype_' + DTYPE[base]


def scalar_type(f, p, c):
    """Type of alpha or beta, for the few that are void: by alphaType, else by compute type and the type of C."""
    if base_type(f.types[p]) != 'void':
        return 'ACCT_dtype_' + DTYPE[base_type(f.types[p])]
    own = pick(f, p + 'Type')
    if own:
        return f'blas_dtype((int){own})'
    return f'blas_scalar_type((int){pick(f, "computeType")}, (int){pick(f, "Ctype")})'


def stride(f, stem):
    p = pick(f, 'stride' + stem, 'stride' + stem.lower())
    return p or 'BLAS_NONE'


def is_pointer_array(f, operand):
    return f.types[operand].count('*') == 2


def initialiser(fields):
    return '{' + ', '.join(f'.{k} = {v}' for k, v in fields) + '}'


def gemm_compute(f):
    if f.has('computeType'):
        return 'blas_compute((int)computeType)'
    letter = re.match(r'cublas([SDCZH]|Uint8)', f.name).group(1)
    return 'ACCT_compute_' + {'S': 'FP32', 'D': 'FP64', 'C': 'FP32', 'Z': 'FP64', 'H': 'FP16', 'Uint8': 'OTHER'}[letter]


def gemm_fields(f, a, b, c):
    return [('a', f'ADDRESS({a})'), ('b', f'ADDRESS({b})'), ('c', f'ADDRESS({c})'), ('a_type', type_of(f, a)),
            ('b_type', type_of(f, b)), ('c_type', type_of(f, c)), ('compute', gemm_compute(f))]


def gemm_call(f):
    a, b, c = (pick(f, x, x + 'array') for x in 'ABC')
    fields = [('handle', 'handle'), ('trans_a', '(int)transa'), ('trans_b', '(int)transb'), ('m', 'm'), ('n', 'n'), ('k', 'k'),
              ('batch', pick(f, 'batchCount') or '1')] + gemm_fields(f, a, b, c)
    fields += [('ld' + x, 'ld' + x) for x in 'abc'] + [('stride_' + x.lower(), stride(f, x)) for x in 'ABC']
    if f.has('alpha'):
        fields += [('alpha', 'alpha'), ('beta', 'beta'), ('scalar_type', scalar_type(f, 'alpha', c))]
    fields += [('pointer_array', str(int(is_pointer_array(f, a)))), ('algo', '(int32_t)algo' if f.has('algo') else 'ACCT_NULL_I32')]
    return f'fill_gemm(&k_, &(struct gemm_args){initialiser(fields)})'


def grouped_call(f):
    fields = [('handle', 'handle'), ('trans_a', 'transa_array'), ('trans_b', 'transb_array')]
    fields += [(x, x + '_array') for x in ('m', 'n', 'k', 'lda', 'ldb', 'ldc')]
    fields += [('group_size', 'group_size'), ('group_count', 'group_count'), ('wide', str(int('int64_t' in f.types['m_array'])))]
    fields += gemm_fields(f, 'Aarray', 'Barray', 'Carray')
    fields += [('alpha', 'alpha_array'), ('beta', 'beta_array'),
               ('scalar_type', 'blas_scalar_type((int)computeType, (int)Ctype)' if f.has('computeType')
                else 'ACCT_dtype_' + DTYPE[base_type(f.types['alpha_array'])])]
    return f'fill_grouped(&k_, &(struct grouped_args){initialiser(fields)})'


def blas_leading(f, operand):
    stem = re.sub('(array|Array)$', '', operand)
    return pick(f, 'ld' + stem.lower(), 'inc' + stem, 'lda_inv' if stem == 'Ainv' else 'ld?') or 'BLAS_NONE'


def blas_type(f, operands):
    """Element type of what the routine writes: its last vector or matrix; of x where the result is a scalar."""
    written = [o for o in operands if o not in ('-', 'result', 'TauArray')]
    target = written[0] if f.has('A') and written[0] in ('A', 'AP') and re.search(r'(ger|syr2?|her2?|spr2?|hpr2?)[uc]?_v2', f.name) \
        else written[-1]
    return type_of(f, target)


def blas_call(f, routine, operands):
    fields = [('handle', 'handle'), ('routine', f'"{routine}"'), ('type', blas_type(f, operands))]
    fields += [(x, x if f.has(x) else 'BLAS_NONE') for x in ('m', 'n', 'k', 'kl', 'ku')]
    fields += [('batch', pick(f, 'batchCount', 'batchSize') or '1')]
    for slot, o in zip('abc', operands):
        fields += [(slot, f'ADDRESS({o})' if o != '-' else '0'), ('ld' + slot, blas_leading(f, o) if o != '-' else 'BLAS_NONE'),
                   ('stride_' + slot, stride(f, o) if o != '-' else 'BLAS_NONE')]
    fields += [('side', f'(int){pick(f, "side", "mode")}' if pick(f, 'side', 'mode') else '-1'),
               ('uplo', '(int)uplo' if f.has('uplo') else '-1'),
               ('trans_a', f'(int){pick(f, "trans", "transa")}' if pick(f, 'trans', 'transa') else '-1'),
               ('trans_b', '(int)transb' if f.has('transb') else '-1')]
    for s in ('alpha', 'beta'):
        if f.has(s):
            fields += [(s, s), (s + '_type', scalar_type(f, s, None))]
    fields += [('pointer_array', str(int(is_pointer_array(f, operands[0]))))]
    if routine in ('gemv', 'syrk', 'herk'):  # some have matrices of a smaller type than that of the result
        fields += [(s + '_type', type_of(f, o)) for s, o in zip('ab', operands) if o != '-' and type_of(f, o) != blas_type(f, operands)]
    return f'fill_blas(&k_, &(struct blas_args){initialiser(fields)})'


def fill_call(f, action):
    word = action.split()
    if word[0] == 'gemm':
        return gemm_call(f)
    if word[0] == 'grouped':
        return grouped_call(f)
    if word[0] == 'params':
        return f'fill_{word[1]}(&k_, &(struct {word[1]}){initialiser((n, n) for _, n in f.params)})'
    if word[0] == 'blas':
        return blas_call(f, word[1], word[2:5])
    call = action.replace('(', '(&k_, ', 1)
    return call if f.has('stream') else call.replace('STREAM(stream)', 'NO_STREAM')


# ---- output -----------------------------------------------------------------------------------------------------------------
def c_type(t):
    for cpp, c in OPAQUE.items():
        t = t.replace(cpp, c)
    return t


def declare(t, name):
    m = re.match(r'(.*)\(\*\)(.*)', t)
    return f'{m[1]}(*{name}){m[2]}' if m else f'{c_type(t)} {name}'


def prototype(f, symbol):
    return f'{f.result} {symbol}({", ".join(declare(t, n) for t, n in f.params) or "void"})'


def wrapper(f, symbol, action):
    names = ', '.join(n for _, n in f.params)
    types = ', '.join(c_type(t) for t, _ in f.params) or 'void'
    head = f'''{prototype(f, symbol)} {{
    {f.result} (*real)({types}) = real_get(API_{symbol});
    if (!real)
        return {ERRORS[f.result]};
'''
    if action == 'first':
        return head + f'''    hook_first();
    return real({names});
}}
'''
    if action == 'nest':
        return head + f'''    hook_first();
    hook_nest(1);
    {f.result} r_ = real({names});
    hook_nest(-1);
    return r_;
}}
'''
    call = fill_call(f, action)
    mark = '    hook_mark(&k_);\n' if re.match(r'fill_(copy|memset|gemm|grouped|blas|lt|launch)', call) else ''
    if call.startswith('fill_alloc') and 'ACCT_memory_PINNED' not in call:
        mark = '    hook_before_memory(&k_);\n'
        if 'ACCT_memory_DEVICE' in call:
            mark += '    hook_ask_memory(&k_, ACCT_meminfo_why_ALLOCATION);\n'
    if call.startswith('fill_free') and 'ACCT_memory_DEVICE' in call:
        address = call.split(',')[1].strip()
        mark = f'    if ({address})\n        hook_ask_memory(&k_, ACCT_meminfo_why_RELEASE);\n'
    if symbol.endswith(('_ptsz', '_ptds')):
        call = re.sub(r'\bSTREAM\(', 'STREAM_PER_THREAD(', call)
    return head + f'''    struct hook_call k_;
    if (!hook_enter(&k_, API_{symbol}))
        return real({names});
{mark}    {f.result} r_ = real({names});
    if (hook_leave(&k_, (int32_t)r_))
        {call};
    hook_done(&k_);
    return r_;
}}
'''


def write_if_changed(path, text):
    if not os.path.exists(path) or open(path).read() != text:
        open(path, 'w').write(text)


def symbols_of(functions, rows, per_thread):
    """Every wrapped symbol in order: [(function, symbol, action)]."""
    out = []
    for f in functions:
        action = action_of(rows, f.library, f.name)
        if action is None:
            # A newer toolkit's function is no reason not to build; the coverage test fails on it.
            print(f'gen_wrappers: {f.name} of lib{f.library} is in no row of api.table: passes through', file=sys.stderr)
            continue
        if action.split()[0] in ('pass', 'missing'):
            continue
        if f.result not in ERRORS and action.split()[0] != 'own':
            sys.exit(f'gen_wrappers: {f.name} returns {f.result}: no error to answer if it is missing')
        out.append((f, f.name, action))
        if f.library == 'cudart' and f.name in per_thread and action.split()[0] != 'own':
            out.append((f, f.name + per_thread[f.name], action))
    return out


def main():
    p = argparse.ArgumentParser()
    for o in ('clang', 'include', 'table', 'out'):
        p.add_argument('--' + o, required=o != 'out')
    p.add_argument('--list', action='store_true')
    o = p.parse_args()
    rows, per_thread = read_table(o.table), per_thread_names(o.include)
    functions = []
    for library, headers in HEADERS.items():
        parsed = {}
        for header, prefix in headers:
            parsed |= parse_header(o.clang, o.include, header, prefix)
        if len(parsed) < FEWEST[library]:
            sys.exit(f'gen_wrappers: only {len(parsed)} functions found for lib{library}; is {o.include} a CUDA toolkit?')
        functions += [Function(library, n, *parsed[n]) for n in sorted(parsed)]
    if o.list:
        for f in functions:
            print(f.library, f.name, action_of(rows, f.library, f.name))
        return
    symbols = symbols_of(functions, rows, per_thread)
    note = '/* Made by preload/gen_wrappers.py from the CUDA headers and preload/api.table. */\n'
    os.makedirs(o.out, exist_ok=True)
    write = lambda name, text: write_if_changed(os.path.join(o.out, name), text)
    numbers = ',\n'.join(f'    API_{s} = {i}' for i, (_, s, _) in enumerate(symbols, 1))
    write('api.h', f'{note}#ifndef ACCT_GEN_API_H\n#define ACCT_GEN_API_H\nenum api_number {{\n{numbers},\n'
          f'    API_COUNT = {len(symbols) + 1}\n}};\n#endif\n')
    names = ''.join(f'    [API_{s}] = {{"{s}", "{f.library}"}},\n' for f, s, _ in symbols)
    write('api_names.c', f'{note}#include "preload/real.h"\nconst struct real_api real_apis[API_COUNT] = {{\n{names}}};\n')
    opaque = ''.join(c + ';\n' for c in OPAQUE.values())
    for library in HEADERS:
        mine = [(f, s, a) for f, s, a in symbols if f.library == library and a.split()[0] != 'own']
        # Declared nowhere in C: the per-thread symbols, and what the vendor gives to C++ only.
        extra = ''.join(prototype(f, s) + ';\n' for f, s, _ in mine
                        if s != f.name or s.startswith('__') or any(h in t for t, _ in f.params for h in OPAQUE))
        write(f'wrap_{library}.c', f'{note}#include "preload/fill.h"\n{opaque}\n{extra}\n' +
              '\n'.join(wrapper(*x) for x in mine))
    write('libacct.map', '{\nglobal:\n' + ''.join(f'    {s};\n' for _, s, _ in symbols) + 'local: *;\n};\n')


if __name__ == '__main__':
    main()
