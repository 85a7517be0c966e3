#!/usr/bin/env python3
"""Generates the thin half of the virtual GPU: for a stand-in library, the table of functions that it gets from the
engine, one trampoline for each, and one line of complaint for each function of the vendor's that nobody implements.

What is implemented is read from the engine's object files: to implement a function is to define it there under the
vendor's name and prototype, nothing else. A plain function whose _64 form alone is defined is made from that one, and
a _ptsz form (default stream per thread) from the plain one.

Functions of the runtime that CUPTI has an id for tell the engine of their beginning and end, if somebody listens.

    generate.py --library cudart|cublas|cublasLt|cupti|nccl --include DIR --real FILE --clang CLANG --own STAND-IN.o … --out PREFIX ENGINE.o …
writes PREFIX_api.h, PREFIX_table.c (for the engine), PREFIX_standin.c, PREFIX_missing.c, PREFIX.map, PREFIX_exports.txt;
with --errors-only just PREFIX_errors.h, the names of the vendor's status codes (cupti: PREFIX_cbids.h too, the names of API calls)."""
import argparse, json, os, re, subprocess, sys

ap = argparse.ArgumentParser()
ap.add_argument('--library', choices=['cudart', 'cublas', 'cublasLt', 'cupti', 'nccl'], required=True)
ap.add_argument('--include', required=True)
ap.add_argument('--real', required=True)
ap.add_argument('--clang', default='clang')
ap.add_argument('--own', nargs='*', default=[])
ap.add_argument('--out', required=True)
ap.add_argument('--errors-only', action='store_true')
ap.add_argument('engine', nargs='*')
args = ap.parse_args()

LIB = args.library
HEADERS = {'cudart': ['cuda_runtime_api.h', 'cuda_profiler_api.h', 'vgpu/vgpu_crt.h'], 'cublas': ['cublas_api.h', 'vgpu/vgpu_blas_half.h'], 'cublasLt': ['cublasLt.h'], 'cupti': ['cupti.h'], 'nccl': ['vgpu/vgpu_nccl.h']}[LIB]
LEGACY = {'cudart': [], 'cublas': ['cublas.h', 'cublasXt.h'], 'cublasLt': [], 'cupti': [], 'nccl': []}[LIB]
NOT_SUPPORTED = {'cudart': 801, 'cublas': 15, 'cublasLt': 15, 'cupti': 27, 'nccl': 5}[LIB]
STATUS = {'cudart': 'cudaError_t', 'cublas': 'cublasStatus_t', 'cublasLt': 'cublasStatus_t', 'cupti': 'CUptiResult', 'nccl': 'ncclResult_t'}[LIB]
NODE = f'lib{LIB}.so.13' if LIB != 'nccl' else ''  # NCCL's symbols have no version


def symbols(flags, *files):
    if not files:
        return set()
    out = subprocess.run(['nm', *flags, *files], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {m[1] for m in re.finditer(r'^[0-9a-f]+ [TWi] ([^\s@]+)', out, re.M)}


def prototypes(headers):
    """name → (return type, [(type, name)]) of every function these headers declare, by clang's JSON tree."""
    src = ''.join(f'#include <{h}>\n' for h in headers)
    run = subprocess.run([args.clang, '-I.', '-isystem', args.include, '-x', 'c', '-fsyntax-only', '-Xclang', '-ast-dump=json', '-'],
                         input=src, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f'generate.py: {args.clang} cannot read {", ".join(headers)} in {args.include}:\n{run.stderr}')
    found = {}
    for d in json.loads(run.stdout)['inner']:
        if d['kind'] == 'EnumDecl':
            enums.setdefault(d.get('name') or d['inner'][0]['name'], [c['name'] for c in d.get('inner', []) if c['kind'] == 'EnumConstantDecl'])
        if d['kind'] == 'FunctionDecl' and d.get('storageClass') != 'static' and re.match(r'_*cu(da|blas|pti)|nccl', d['name']):
            params = [(p['type']['qualType'], p.get('name', f'a{i}'))
                      for i, p in enumerate(q for q in d.get('inner', []) if q['kind'] == 'ParmVarDecl')]
            found[d['name']] = (d['type']['qualType'].split('(')[0].strip(), params)
    return found


def per_thread_names():
    text = open(os.path.join(args.include, 'cuda_runtime_api.h')).read()
    return {n + '_' + s.lower() for s, n in re.findall(r'__CUDART_API_(PTSZ|PTDS)\((cuda\w+)\)', text)}


def cupti_names():
    """Functions of CUPTI's further headers: one of those is for C++ only."""
    names = set()
    for h in os.listdir(args.include):
        if re.match(r'cupti_\w+\.h$', h) and h not in ('cupti_checkpoint.h', 'cupti_pcsampling_util.h'):  # libraries of their own
            names |= set(re.findall(r'CUptiResult\s+CUPTIAPI\s+(cupti\w+)', open(os.path.join(args.include, h)).read()))
    return names


def removed():
    """Functions that the vendor's CUPTI 13 still has, and answers all alike: not any more."""
    text = ''.join(open(os.path.join(args.include, h)).read() for h in ('cupti_events.h', 'cupti_metrics.h'))
    return set(re.findall(r'CUptiResult\s+CUPTIAPI\s+(cupti\w+)', text)) | {'cuptiActivityConfigurePCSampling'}


def cbids():
    """name → number of each runtime call that CUPTI reports; of several versions the newest."""
    text = open(os.path.join(args.include, 'cupti_runtime_cbid.h')).read()
    found = re.findall(r'CUPTI_RUNTIME_TRACE_CBID_(\w+)_v(\d+) *= *(\d+)', text)
    return {name: number for name, _, number in sorted(found, key=lambda f: int(f[1]))}


enums = {}
protos = prototypes(HEADERS)
legacy = {}
for h in LEGACY:  # cublas.h cannot be read beside the others
    legacy.update(prototypes([h]))
vendor = {n for n in {**protos, **legacy} if re.match({'cudart': '_*cuda', 'cublas': 'cublas', 'cublasLt': 'cublasLt', 'cupti': 'cupti', 'nccl': 'nccl'}[LIB], n)}
if LIB == 'cudart':
    vendor |= per_thread_names()
if LIB == 'cupti':
    vendor |= cupti_names()
if os.path.exists(args.real):  # more than the headers declare: graphics interop, old names
    vendor |= symbols(['-D', '--defined-only'], args.real)
own = symbols(['-g'], *args.own)
if LIB == 'cudart':  # nvcc's code calls these; no header that a C compiler reads declares them
    vendor |= {n for n in own if n.startswith('__cuda')} | {'__cudaLaunchKernel', '__cudaLaunchKernel_ptsz'}
engine = symbols(['-g'], *args.engine) & (set(protos) | {n for n in vendor if n.endswith(('_ptds', '_ptsz'))})


def declare(ret, name, params):
    text = ', '.join(t.replace('(*)', f'(*{n})') if '(*)' in t else t[:-2].rstrip() + f' {n}[]' if t.endswith('[]') else f'{t} {n}'
                     for t, n in params)
    return f'{ret} {name}({text or "void"})'


def same_but_int(a, b):
    return a[0] == b[0] and len(a[1]) == len(b[1]) and all(
        x[0] == y[0] or (x[0] == 'int' and y[0] == 'int64_t') for x, y in zip(a[1], b[1]))


def source(name):
    """(function of the engine's table that answers for name, arguments) or None."""
    base = name[:-5] if name.endswith('_ptsz') else name
    if name in engine:
        p = protos.get(name) or protos[name[:-5]]
        return name, p, [n for _, n in p[1]]
    if base != name and base in engine:
        p = protos[base]
        return base, p, [f'({n} ? {n} : cudaStreamPerThread)' if t == 'cudaStream_t' else n for t, n in p[1]]
    if name in protos and name + '_64' in engine and same_but_int(protos[name], protos[name + '_64']):
        return name + '_64', protos[name], [n for _, n in protos[name][1]]
    return None


# How a call is answered while the whole device refuses (a forked child, a program that is exiting, an address fault).
UNGATED = {'cuptiGetLastError', 'cuptiGetVersion', 'cuptiGetResultString', 'cuptiGetErrorMessage', 'cuptiGetCallbackName', 'cuptiActivityGetNextRecord',
           'cudaGetLastError', 'cudaPeekAtLastError', 'cudaGetErrorName', 'cudaGetErrorString', 'cudaDriverGetVersion',
           'cudaRuntimeGetVersion', 'cublasGetStatusName', 'cublasGetStatusString', 'cublasGetVersion_v2', 'cublasGetProperty',
           'cublasLtGetProperty',
           'ncclGetVersion', 'ncclGetErrorString', 'ncclGetLastError',
           'cudaDeviceReset', '__cudaGetKernel'}  # whose answer nvcc's stub keeps for ever
head = f'/* Made by vgpu/generate.py from the vendor\'s headers and the engine\'s objects: do not edit. */\n'
include = ''.join(f'#include <{h}>\n' for h in HEADERS)

api, table, stand, miss = [head], [head], [head], [head]
api.append(f'#ifndef VGPU_{LIB.upper()}_API_H\n#define VGPU_{LIB.upper()}_API_H\n{include}')
for n in sorted(n for n in engine if n.endswith(('_ptds', '_ptsz'))):
    api.append(declare(protos[n[:-5]][0], n, protos[n[:-5]][1]) + ';')
api.append(f'struct vgpu_{LIB}_api {{\n    int (*refuse)(void);\n    void (*note)(int error);')
if LIB == 'cudart':
    api[0] += '#include "vgpu/vgpu_activity.h"\n'
    api.append('    const _Atomic int *wanted;\n    __typeof__(&vgpu_api_enter) enter;\n    __typeof__(&vgpu_api_leave) leave;')
api += [f'    __typeof__(&{n}) {n};' for n in sorted(engine)]
api.append('};\n#endif\n')
table.append(f'#include "{os.path.basename(args.out)}_api.h"\n#include "vgpu/vgpu_engine.h"\n')
table.append(f'const struct vgpu_{LIB}_api vgpu_{LIB}_table = {{\n    .refuse = vgpu_{LIB}_refuse,\n    .note = vgpu_{LIB}_note,')
if LIB == 'cudart':
    table.append('    .wanted = &vgpu_activity_wanted,\n    .enter = vgpu_api_enter,\n    .leave = vgpu_api_leave,')
table += [f'    .{n} = {n},' for n in sorted(engine)]
table.append('};\n')

stand.append(f'#include "{os.path.basename(args.out)}_api.h"\n#include "vgpu/vgpu_standin.h"\n')
stand.append('#pragma GCC diagnostic ignored "-Wmissing-prototypes"\n')
miss.append('#include "vgpu/vgpu_standin.h"\n#include <math.h>\n#pragma GCC diagnostic ignored "-Wmissing-prototypes"\n')
exports = []
numbers = cbids() if LIB == 'cudart' else {}
gone = removed() if LIB == 'cupti' else set()


def reported(name, params, call):
    """A call of the engine with word of it to CUPTI's client: whose struct of parameters is the vendor's, the parameters in order."""
    arguments = [n for _, n in params]
    fields = ' '.join(field(t, n) + ';' for t, n in params)
    text = f'    struct vgpu_api_call told;\n    int heard = atomic_load_explicit(api->wanted, memory_order_relaxed);\n'
    if params:
        text += f'    struct {{ {fields} }} said;\n    if (heard) {{\n'
        text += ''.join(f'        said.{n} = ({n});\n' for n in arguments)
    else:
        text += '    if (heard) {\n'
    pointer = '&said' if params else '0'
    return (text + f'        api->enter(&told, 0, {numbers[name]}, "{name}", {pointer});\n    }}\n    {STATUS} e = {call};\n'
            '    if (heard)\n        api->leave(&told, (int)e);\n')


def field(t, n):
    return t.replace('(*)', f'(*{n})') if '(*)' in t else t[:-2].rstrip() + f' *{n}' if t.endswith('[]') else f'{t} {n}'


for name in sorted(vendor):
    if name == NODE:
        continue
    exports.append(name)
    if name in own:
        continue
    s = source(name)
    if s is None:
        if name in gone:
            miss.append(f'int {name}(void)\n{{\n    return vgpu_removed();\n}}')
            continue
        if name.startswith('InitializeInjection'):  # NVTX would take any answer but 0 for success
            miss.append(f'int {name}(void)\n{{\n    static int said;\n    vgpu_missing(&said, "{name}", {NOT_SUPPORTED});\n    return 0;\n}}')
            continue
        ret = (protos.get(name) or legacy.get(name) or ('int', []))[0]
        if ret in ('float', 'double'):
            miss.append(f'{ret} {name}(void)\n{{\n    static int said;\n    vgpu_missing(&said, "{name}", {NOT_SUPPORTED});\n    return NAN;\n}}')
        else:
            miss.append(f'int {name}(void)\n{{\n    static int said;\n    return vgpu_missing(&said, "{name}", {NOT_SUPPORTED});\n}}')
        continue
    target, (ret, params), names = s
    call = f'api->{target}({", ".join(names)})'
    stand.append(declare(ret, name, params) + f'\n{{\n    const struct vgpu_{LIB}_api *api = vgpu_{LIB}();')
    if ret == STATUS:
        stand.append(f'    if (!api)\n        return vgpu_unavailable_{LIB}();')
        if name not in UNGATED:
            stand.append('    int refused = api->refuse();\n    if (refused)\n        return (%s)refused;' % STATUS)
        stand.append(reported(name, params, call) if name in numbers else f'    {STATUS} e = {call};\n')
        noted = name not in ('cudaGetLastError', 'cudaPeekAtLastError', 'cuptiGetLastError')
        stand.append('    if (e)\n        api->note((int)e);\n    return e;\n}' if noted else '    return e;\n}')
    else:
        default = '""' if '*' in ret else f'({ret}){{0}}'
        stand.append(f'    return api ? {call} : {default};\n}}' if ret != 'void' else f'    if (api)\n        {call};\n}}')


def write(suffix, text):
    path = args.out + suffix
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as f:
        f.write(text)


if args.errors_only:  # names of the status codes: the enum that has the library's success code
    success = {'cudart': 'cudaSuccess', 'cublas': 'CUBLAS_STATUS_SUCCESS', 'cupti': 'CUPTI_SUCCESS'}[LIB]
    names = [n for n in next(v for v in enums.values() if success in v) if not n.endswith('_FORCE_INT')]
    if LIB == 'cupti':
        text = head
        for side in ('RUNTIME', 'DRIVER'):
            prefix = f'CUPTI_{side}_TRACE_CBID_'
            listed = next(v for v in enums.values() if prefix + 'INVALID' in v)
            text += ''.join(f'VGPU_{side}({n}, "{n[len(prefix):]}")\n' for n in listed if n[len(prefix):] not in ('SIZE', 'FORCE_INT'))
        write('_cbids.h', text)
    write('_errors.h', head + ''.join(f'VGPU_ERROR({n})\n' for n in names))
    sys.exit()
write('_api.h', '\n'.join(api))
write('_table.c', '\n'.join(table))
write('_standin.c', '\n'.join(stand) + '\n')
write('_missing.c', '\n'.join(miss) + '\n')
write('_exports.txt', '\n'.join(exports) + '\n')
mine = ['acctVgpuDevice'] if LIB == 'cudart' else []  # include/acct/vgpu.h
write('.map', (NODE + ' {\n').lstrip() + '  global:\n' + ''.join(f'    {n};\n' for n in exports + mine) + '  local: *;\n};\n')
