// CUDA graphs as a program sees them: graph_cases CASE. tests/test_graphs.py runs each. What a captured step must give is
// computed on the host in double precision; which error a call must give is the vendor's documentation's.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include "tests/programs/program_check.h"

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#define GIVES(error, call)                                                                                  \
    do {                                                                                                    \
        cudaError_t e_ = (call);                                                                            \
        if (e_ != (error)) {                                                                                \
            fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(e_), \
                    cudaGetErrorName(error));                                                               \
            exit(1);                                                                                        \
        }                                                                                                   \
        cudaGetLastError();                                                                                 \
    } while (0)

__global__ void residual(const float *prediction, const float *target, float *r, float *loss, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    r[i] = prediction[i] - target[i];
    atomicAdd(loss, r[i] * r[i] / n);
}
__global__ void descend(float *w, const float *gradient, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] -= rate * gradient[i];
}
__global__ void decay(float *w, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] *= factor;
}
__global__ void set(int *x, int value) { *x = value; }
__global__ void add(int *x, int value) { *x += value; }
__global__ void shift(int *x, int value) { *x = *x * 10 + value; }
__device__ int variable;

struct Host {
    static void CUDART_CB count(void *p) { ++*(int *)p; }
    static void CUDART_CB digit(void *p) { *(int *)p = *(int *)p * 10 + 7; }
};

static int device_int(const int *p) {
    int v;
    CHECK(cudaMemcpy(&v, p, sizeof v, cudaMemcpyDeviceToHost));
    return v;
}

static int *new_int(int value) {
    int *p;
    CHECK(cudaMalloc(&p, sizeof *p));
    CHECK(cudaMemcpy(p, &value, sizeof value, cudaMemcpyHostToDevice));
    return p;
}

static void clear(int *p) {
    CHECK(cudaMemset(p, 0, sizeof *p));
    CHECK(cudaDeviceSynchronize());
}

static cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

static size_t count_nodes(cudaGraph_t g) {
    size_t n = 0;
    CHECK(cudaGraphGetNodes(g, nullptr, &n));
    return n;
}

// ---- one training step, captured with a fork and a join ----

struct Training { // X (rows × inputs) · W (inputs × outputs) against Y, column-major
    static const int rows = 48, inputs = 12, outputs = 5;
    float *x, *y, *w, *p, *r, *g, *loss, *host_x, *host_y, *host_loss;
    cublasHandle_t blas;
    cudaStream_t stream, side;
    cudaEvent_t fork, join;

    static double sample(int i) { return std::sin(0.37 * i) + 0.25 * std::cos(1.7 * i); }
    Training() {
        CHECK(cudaMalloc(&x, rows * inputs * 4));
        CHECK(cudaMalloc(&y, rows * outputs * 4));
        CHECK(cudaMalloc(&w, inputs * outputs * 4));
        CHECK(cudaMalloc(&p, rows * outputs * 4));
        CHECK(cudaMalloc(&r, rows * outputs * 4));
        CHECK(cudaMalloc(&g, inputs * outputs * 4));
        CHECK(cudaMalloc(&loss, 4));
        CHECK(cudaMallocHost(&host_x, rows * inputs * 4));
        CHECK(cudaMallocHost(&host_y, rows * outputs * 4));
        CHECK(cudaMallocHost(&host_loss, 4));
        CHECK(cudaMemset(w, 0, inputs * outputs * 4));
        CHECK(cudaDeviceSynchronize());
        stream = new_stream();
        side = new_stream();
        CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        CHECK(cublasCreate(&blas));
    }
    void batch(int step) {
        for (int i = 0; i < rows * inputs; i++) host_x[i] = (float)sample(i + 1000 * step);
        for (int i = 0; i < rows * outputs; i++) host_y[i] = (float)sample(3 * i + 77 * step);
    }
    void step(float rate) { // into `stream`, whether captured or not
        const float one = 1, zero = 0, scale = 2.0f / (rows * outputs);
        const int n = rows * outputs, weights = inputs * outputs;
        CHECK(cudaEventRecord(fork, stream));
        CHECK(cudaStreamWaitEvent(side, fork, 0));
        CHECK(cudaMemcpyAsync(y, host_y, n * 4, cudaMemcpyHostToDevice, side)); // beside the forward pass
        CHECK(cudaMemsetAsync(loss, 0, 4, side));
        CHECK(cudaEventRecord(join, side));
        CHECK(cudaMemcpyAsync(x, host_x, rows * inputs * 4, cudaMemcpyHostToDevice, stream));
        CHECK(cublasSetStream(blas, stream));
        CHECK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, rows, outputs, inputs, &one, x, rows, w, inputs, &zero, p, rows));
        CHECK(cudaStreamWaitEvent(stream, join, 0));
        residual<<<(n + 63) / 64, 64, 0, stream>>>(p, y, r, loss, n);
        CHECK(cublasSgemm(blas, CUBLAS_OP_T, CUBLAS_OP_N, inputs, outputs, rows, &scale, x, rows, r, rows, &zero, g, inputs));
        descend<<<1, weights, 0, stream>>>(w, g, rate, weights);
        CHECK(cudaMemcpyAsync(host_loss, loss, 4, cudaMemcpyDeviceToHost, stream));
    }
    cudaGraph_t capture(float rate) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        step(rate);
        CHECK(cudaStreamEndCapture(stream, &graph));
        return graph;
    }
    void check_against(const std::vector<double> &want, const char *what) {
        std::vector<float> got(inputs * outputs);
        CHECK(cudaMemcpy(got.data(), w, got.size() * 4, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < got.size(); i++)
            if (std::fabs(got[i] - want[i]) > 2e-5 * (1 + std::fabs(want[i]))) {
                fprintf(stderr, "%s: w[%zu] is %.8g, not %.8g\n", what, i, got[i], want[i]);
                exit(1);
            }
    }
};

// The same step in double precision; returns the loss.
static double reference_step(std::vector<double> &w, int step, double rate) {
    const int R = Training::rows, I = Training::inputs, O = Training::outputs;
    std::vector<double> x(R * I), r(R * O), g(I * O);
    double loss = 0;
    for (int i = 0; i < R * I; i++) x[i] = (float)Training::sample(i + 1000 * step);
    for (int o = 0; o < O; o++)
        for (int n = 0; n < R; n++) {
            double p = 0;
            for (int i = 0; i < I; i++) p += x[n + R * i] * w[i + I * o];
            r[n + R * o] = p - (float)Training::sample(3 * (n + R * o) + 77 * step);
            loss += r[n + R * o] * r[n + R * o] / (R * O);
        }
    for (int o = 0; o < O; o++)
        for (int i = 0; i < I; i++)
            for (int n = 0; n < R; n++) g[i + I * o] += 2.0 / (R * O) * x[n + R * i] * r[n + R * o];
    for (int i = 0; i < I * O; i++) w[i] -= rate * g[i];
    return loss;
}

static void training() {
    Training t;
    std::vector<double> want(t.inputs * t.outputs);
    cudaGraph_t graph = t.capture(0.3f);
    float before[4];
    CHECK(cudaMemcpy(before, t.w, sizeof before, cudaMemcpyDeviceToHost));
    for (float b : before) EXPECT(b == 0); // capturing does nothing
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph)); // the executable graph needs it no more
    for (int s = 0; s < 20; s++) {
        t.batch(s);
        double loss = reference_step(want, s, 0.3f);
        CHECK(cudaGraphLaunch(exec, t.stream));
        CHECK(cudaStreamSynchronize(t.stream));
        EXPECT(std::fabs(*t.host_loss - loss) < 1e-5 * (1 + loss));
    }
    t.check_against(want, "captured");
    t.batch(20); // a plain step between two launches
    t.step(0.3f);
    CHECK(cudaStreamSynchronize(t.stream));
    reference_step(want, 20, 0.3f);
    t.batch(21);
    CHECK(cudaGraphLaunch(exec, t.stream));
    CHECK(cudaStreamSynchronize(t.stream));
    reference_step(want, 21, 0.3f);
    t.check_against(want, "beside plain steps");
    CHECK(cudaGraphExecDestroy(exec));
    GIVES(cudaErrorInvalidValue, cudaGraphLaunch(exec, t.stream));
}

static void update() {
    Training t;
    std::vector<double> want(t.inputs * t.outputs);
    cudaGraphExec_t exec;
    cudaGraph_t first = t.capture(0.3f), second = t.capture(0.05f);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphInstantiate(&exec, first, 0));
    const double rates[] = {0.3f, 0.05f, 0.3f};
    for (int s = 0; s < 3; s++) {
        if (s) {
            CHECK(cudaGraphExecUpdate(exec, s == 1 ? second : first, &info));
            EXPECT(info.result == cudaGraphExecUpdateSuccess && !info.errorNode);
        }
        t.batch(s);
        CHECK(cudaGraphLaunch(exec, t.stream));
        CHECK(cudaStreamSynchronize(t.stream));
        reference_step(want, s, rates[s]);
    }
    t.check_against(want, "updated");

    // one node's parameters: the learning rate, found among the arguments of the node's kernel
    std::vector<cudaGraphNode_t> nodes(count_nodes(first));
    size_t n = nodes.size();
    CHECK(cudaGraphGetNodes(first, nodes.data(), &n));
    cudaGraphNode_t update_node = nullptr, product = nullptr;
    for (auto node : nodes) {
        cudaGraphNodeType type;
        cudaKernelNodeParams p;
        CHECK(cudaGraphNodeGetType(node, &type));
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaError_t e = cudaGraphKernelNodeGetParams(node, &p);
        if (e) product = node;
        EXPECT(!e || e == cudaErrorInvalidDeviceFunction); // a product's kernel is no function of the program
        if (!e && p.func == (void *)descend) {
            update_node = node;
            EXPECT(*(float *)p.kernelParams[2] == 0.3f && *(float **)p.kernelParams[0] == t.w && p.blockDim.x == 60);
        }
    }
    cudaGetLastError();
    EXPECT(update_node && product);
    float rate = 0.1f;
    int weights = t.inputs * t.outputs;
    void *args[] = {&t.w, &t.g, &rate, &weights};
    cudaKernelNodeParams p = {(void *)descend, dim3(2), dim3(32), 0, args, nullptr};
    CHECK(cudaGraphExecKernelNodeSetParams(exec, update_node, &p));
    t.batch(3);
    CHECK(cudaGraphLaunch(exec, t.stream));
    CHECK(cudaStreamSynchronize(t.stream));
    reference_step(want, 3, 0.1f);
    t.check_against(want, "with one node's parameters");
    CHECK(cudaGraphNodeSetEnabled(exec, update_node, 0)); // without the update the weights stay
    unsigned on = 7;
    CHECK(cudaGraphNodeGetEnabled(exec, update_node, &on));
    EXPECT(on == 0);
    CHECK(cudaGraphLaunch(exec, t.stream));
    CHECK(cudaStreamSynchronize(t.stream));
    t.check_against(want, "switched off");

    // another shape
    cudaGraph_t other;
    CHECK(cudaGraphClone(&other, first));
    cudaGraphNode_t extra;
    CHECK(cudaGraphAddEmptyNode(&extra, other, nullptr, 0));
    GIVES(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged && !info.errorNode);
    CHECK(cudaGraphDestroyNode(extra));
    CHECK(cudaGraphExecUpdate(exec, other, &info)); // as it was
    cudaGraphNode_t in_clone;
    CHECK(cudaGraphNodeFindInClone(&in_clone, update_node, other));
    cudaGraphNode_t dependency;
    n = 1;
    CHECK(cudaGraphNodeGetDependencies(in_clone, &dependency, nullptr, &n));
    EXPECT(n == 1);
    CHECK(cudaGraphRemoveDependencies(other, &dependency, &in_clone, nullptr, 1));
    GIVES(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, other, &info));
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged && info.errorNode == in_clone);

    // another type at the same place
    cudaGraph_t a, b;
    cudaGraphNode_t node;
    cudaGraphExec_t small;
    CHECK(cudaGraphCreate(&a, 0));
    CHECK(cudaGraphCreate(&b, 0));
    CHECK(cudaGraphAddEmptyNode(&node, a, nullptr, 0));
    int called = 0;
    cudaHostNodeParams h = {Host::count, &called};
    CHECK(cudaGraphAddHostNode(&node, b, nullptr, 0, &h));
    CHECK(cudaGraphInstantiate(&small, a, 0));
    GIVES(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(small, b, &info));
    EXPECT(info.result == cudaGraphExecUpdateErrorNodeTypeChanged && info.errorNode == node);
}

// ---- graphs made node by node ----

static void built() {
    const int n = 1000;
    unsigned *a;
    int *digits = new_int(0), called = 0;
    std::vector<unsigned> back(n);
    CHECK(cudaMalloc(&a, n * 4));
    cudaGraph_t g;
    cudaGraphNode_t fill, copy, host, first, second, third, all;
    CHECK(cudaGraphCreate(&g, 0));
    // made from the last to the first, so that only the dependencies say what comes first
    cudaHostNodeParams h = {Host::count, &called};
    CHECK(cudaGraphAddHostNode(&host, g, nullptr, 0, &h));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, g, nullptr, 0, back.data(), a, n * 4, cudaMemcpyDeviceToHost));
    cudaMemsetParams m = {a, 0, 0x01020304, 4, (size_t)n, 1};
    CHECK(cudaGraphAddMemsetNode(&fill, g, nullptr, 0, &m));
    CHECK(cudaGraphAddDependencies(g, &fill, &copy, nullptr, 1));
    CHECK(cudaGraphAddDependencies(g, &copy, &host, nullptr, 1));
    GIVES(cudaErrorInvalidValue, cudaGraphAddDependencies(g, &copy, &host, nullptr, 1)); // is there already
    int one = 1, two = 2, three = 3;
    void *args1[] = {&digits, &one}, *args2[] = {&digits, &two}, *args3[] = {&digits, &three};
    cudaKernelNodeParams k3 = {(void *)shift, dim3(1), dim3(1), 0, args3, nullptr};
    cudaKernelNodeParams k2 = {(void *)shift, dim3(1), dim3(1), 0, args2, nullptr};
    cudaKernelNodeParams k1 = {(void *)shift, dim3(1), dim3(1), 0, args1, nullptr};
    CHECK(cudaGraphAddKernelNode(&third, g, nullptr, 0, &k3));
    CHECK(cudaGraphAddKernelNode(&second, g, nullptr, 0, &k2));
    CHECK(cudaGraphAddKernelNode(&first, g, nullptr, 0, &k1));
    cudaGraphNode_t from[] = {first, second}, to[] = {second, third};
    CHECK(cudaGraphAddDependencies(g, from, to, nullptr, 2));
    cudaGraphNode_t ends[] = {third, host};
    CHECK(cudaGraphAddEmptyNode(&all, g, ends, 2));
    one = two = three = 9; // copied when the nodes were made

    size_t edges = 0, roots = 0;
    CHECK(cudaGraphGetEdges(g, nullptr, nullptr, nullptr, &edges));
    CHECK(cudaGraphGetRootNodes(g, nullptr, &roots));
    EXPECT(count_nodes(g) == 7 && edges == 6 && roots == 2);
    cudaGraphNode_t list[4] = {g ? all : nullptr, all, all, all};
    size_t room = 4;
    CHECK(cudaGraphGetRootNodes(g, list, &room));
    EXPECT(room == 2 && list[0] == fill && list[1] == first && !list[2] && !list[3]);
    room = 1;
    CHECK(cudaGraphNodeGetDependentNodes(copy, list, nullptr, &room));
    EXPECT(room == 1 && list[0] == host);
    cudaMemsetParams told;
    CHECK(cudaGraphMemsetNodeGetParams(fill, &told));
    EXPECT(told.dst == a && told.value == 0x01020304 && told.elementSize == 4 && told.width == (size_t)n);

    cudaGraphExec_t exec;
    cudaStream_t s = new_stream();
    CHECK(cudaGraphInstantiateWithFlags(&exec, g, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
    for (unsigned v : back) EXPECT(v == 0x01020304);
    EXPECT(called == 2 && device_int(digits) == 123123);

    // as a child: a copy; what becomes of the original does not matter
    cudaGraph_t parent, inside;
    cudaGraphNode_t child, after;
    cudaGraphExec_t both;
    CHECK(cudaGraphCreate(&parent, 0));
    CHECK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, g));
    CHECK(cudaGraphDestroyNode(first));
    CHECK(cudaGraphDestroyNode(second));
    EXPECT(count_nodes(g) == 5);
    int four = 4;
    void *args4[] = {&digits, &four};
    cudaGraphNodeParams generic = {};
    generic.type = cudaGraphNodeTypeKernel;
    generic.kernel.func = (void *)shift;
    generic.kernel.gridDim = generic.kernel.blockDim = dim3(1);
    generic.kernel.kernelParams = args4;
    CHECK(cudaGraphAddNode(&after, parent, &child, nullptr, 1, &generic));
    CHECK(cudaGraphChildGraphNodeGetGraph(child, &inside));
    EXPECT(count_nodes(inside) == 7);
    clear(digits);
    CHECK(cudaGraphInstantiate(&both, parent, 0));
    CHECK(cudaGraphLaunch(both, s));
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(digits) == 1234);
    GIVES(cudaErrorInvalidValue, cudaGraphDestroy(inside)); // the node's

    // a circle cannot be launched
    cudaGraph_t circle;
    cudaGraphNode_t x, y;
    CHECK(cudaGraphCreate(&circle, 0));
    CHECK(cudaGraphAddEmptyNode(&x, circle, nullptr, 0));
    CHECK(cudaGraphAddEmptyNode(&y, circle, &x, 1));
    CHECK(cudaGraphAddDependencies(circle, &y, &x, nullptr, 1));
    GIVES(cudaErrorInvalidValue, cudaGraphInstantiate(&exec, circle, 0));
    GIVES(cudaErrorInvalidValue, cudaGraphAddDependencies(circle, &y, &y, nullptr, 1));
    GIVES(cudaErrorInvalidValue, cudaGraphAddEmptyNode(&x, circle, &first, 1)); // of another graph, and gone
    cudaKernelNodeParams bad = {(void *)shift, dim3(1), dim3(2000), 0, args1, nullptr};
    GIVES(cudaErrorInvalidValue, cudaGraphAddKernelNode(&x, circle, nullptr, 0, &bad));

    std::ifstream file;
    std::string path = std::string(getenv("GRAPH_FOLDER") ? getenv("GRAPH_FOLDER") : "/tmp") + "/graph.dot";
    CHECK(cudaGraphDebugDotPrint(parent, path.c_str(), 0));
    file.open(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT(text.str().find("digraph") == 0 && text.str().find("shift") != std::string::npos);
}

// ---- copies of all shapes, symbols, events, the order in the stream ----

static void copies() {
    const int w = 7, h = 5, d = 3;
    unsigned char *a, *b;
    size_t pitch;
    std::vector<unsigned char> in(w * h * d), out(w * h * d, 0), flat(w * h, 0);
    for (size_t i = 0; i < in.size(); i++) in[i] = (unsigned char)(i * 37 + 11);
    CHECK(cudaMallocPitch(&a, &pitch, w, h * d));
    CHECK(cudaMalloc(&b, w * h));
    cudaStream_t s = new_stream();
    cudaGraph_t g;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(in.data(), w, w, h);
    p.dstPtr = make_cudaPitchedPtr(a, pitch, w, h);
    p.extent = make_cudaExtent(w, h, d);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3DAsync(&p, s));
    CHECK(cudaMemcpy2DAsync(b, w, a + pitch * h, pitch, w, h, cudaMemcpyDeviceToDevice, s)); // the second slice
    CHECK(cudaMemset2DAsync(a + 2 * pitch * h, pitch, 0x5a, 3, h, s));                       // three columns of the third
    int five = 5;
    CHECK(cudaMemcpyToSymbolAsync(variable, &five, sizeof five, 0, cudaMemcpyHostToDevice, s));
    std::swap(p.srcPtr, p.dstPtr);
    p.dstPtr = make_cudaPitchedPtr(out.data(), w, w, h);
    p.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&p, s));
    CHECK(cudaMemcpyAsync(flat.data(), b, w * h, cudaMemcpyDefault, s));
    CHECK(cudaStreamEndCapture(s, &g));
    EXPECT(count_nodes(g) == 6);
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    for (int round = 0; round < 2; round++) {
        for (auto &v : in) v ^= (unsigned char)(round * 0x33); // the host's memory is read by each launch
        five = 5 + round;
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaStreamSynchronize(s));
        for (int z = 0; z < d; z++)
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    int i = (z * h + y) * w + x;
                    EXPECT(out[i] == (z == 2 && x < 3 ? 0x5a : in[i]));
                }
        EXPECT(!memcmp(flat.data(), in.data() + w * h, w * h));
        int symbol = 0;
        CHECK(cudaMemcpyFromSymbol(&symbol, variable, sizeof symbol));
        EXPECT(symbol == 5 + round);
    }
    std::vector<cudaGraphNode_t> nodes(6);
    size_t n = 6;
    CHECK(cudaGraphGetNodes(g, nodes.data(), &n));
    cudaMemcpy3DParms told;
    CHECK(cudaGraphMemcpyNodeGetParams(nodes[1], &told));
    EXPECT(told.srcPtr.ptr == a + pitch * h && told.dstPtr.ptr == b && told.extent.width == (size_t)w && told.extent.height == (size_t)h);
    GIVES(cudaErrorInvalidValue, cudaGraphMemsetNodeGetParams(nodes[1], nullptr));
    cudaMemsetParams wrong;
    GIVES(cudaErrorInvalidValue, cudaGraphMemsetNodeGetParams(nodes[1], &wrong)); // of another type
}

static void order() {
    int *x = new_int(0), host = 0;
    cudaStream_t s = new_stream(), other = new_stream(), blocking = new_stream(cudaStreamDefault);
    cudaGraph_t g;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    for (int i = 1; i <= 3; i++) shift<<<1, 1, 0, s>>>(x, i);
    CHECK(cudaLaunchHostFunc(s, Host::digit, &host));
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    shift<<<1, 1, 0, s>>>(x, 9);
    CHECK(cudaGraphLaunch(exec, s));
    shift<<<1, 1, 0, s>>>(x, 8);
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(x) == 91238 && host == 7);
    clear(x);
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, i % 2 ? other : s)); // one after the other all the same
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(x) == 123123123 && host == 7777);
    clear(x);
    CHECK(cudaGraphLaunch(exec, blocking)); // the default stream waits for it
    shift<<<1, 1>>>(x, 4);
    EXPECT(device_int(x) == 1234);

    // events as nodes
    cudaEvent_t mark;
    CHECK(cudaEventCreate(&mark));
    cudaGraph_t with;
    cudaGraphNode_t record, k;
    cudaGraphExec_t recording;
    int six = 6;
    void *args[] = {&x, &six};
    cudaKernelNodeParams kp = {(void *)shift, dim3(1), dim3(1), 0, args, nullptr};
    CHECK(cudaGraphCreate(&with, 0));
    CHECK(cudaGraphAddKernelNode(&k, with, nullptr, 0, &kp));
    CHECK(cudaGraphAddEventRecordNode(&record, with, &k, 1, mark));
    CHECK(cudaGraphInstantiate(&recording, with, 0));
    clear(x);
    CHECK(cudaGraphLaunch(recording, s));
    CHECK(cudaStreamWaitEvent(other, mark, 0));
    shift<<<1, 1, 0, other>>>(x, 5);
    CHECK(cudaStreamSynchronize(other));
    EXPECT(device_int(x) == 65);
    cudaEvent_t got;
    CHECK(cudaGraphEventRecordNodeGetEvent(record, &got));
    EXPECT(got == mark);
    // the same from a capture, with the flag that makes it a node; another stream may wait for what the launch records
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    add<<<1, 1, 0, s>>>(x, 1);
    CHECK(cudaEventRecordWithFlags(mark, s, cudaEventRecordExternal));
    CHECK(cudaStreamEndCapture(s, &with));
    EXPECT(count_nodes(with) == 2);
    CHECK(cudaGraphInstantiate(&recording, with, 0));
    CHECK(cudaGraphLaunch(recording, s));
    CHECK(cudaEventSynchronize(mark));
    EXPECT(device_int(x) == 66);
    // a launch inside a capture is a child graph
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(cudaGraphLaunch(recording, s));
    add<<<1, 1, 0, s>>>(x, 100);
    CHECK(cudaStreamEndCapture(s, &with));
    cudaGraphNode_t root;
    cudaGraphNodeType type;
    size_t one = 1;
    CHECK(cudaGraphGetRootNodes(with, &root, &one));
    CHECK(cudaGraphNodeGetType(root, &type));
    EXPECT(count_nodes(with) == 2 && type == cudaGraphNodeTypeGraph);
    CHECK(cudaGraphInstantiate(&recording, with, 0));
    CHECK(cudaGraphLaunch(recording, s));
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(x) == 167);
}

// ---- capture: what it tells, and what it refuses ----

static void told() {
    int *x = new_int(0);
    cudaStream_t s = new_stream(), side = new_stream();
    cudaStreamCaptureStatus status;
    unsigned long long id = 0, other = 0;
    cudaGraph_t g, same;
    const cudaGraphNode_t *from;
    size_t n = 99;
    CHECK(cudaStreamIsCapturing(s, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamGetCaptureInfo(s, &status, &id, &g, &from, nullptr, &n));
    EXPECT(status == cudaStreamCaptureStatusActive && id && n == 0 && count_nodes(g) == 0);
    set<<<1, 1, 0, s>>>(x, 1);
    cudaEvent_t mark;
    CHECK(cudaEventCreate(&mark)); // allowed
    CHECK(cudaEventRecord(mark, s));
    CHECK(cudaStreamWaitEvent(side, mark, 0));
    CHECK(cudaStreamGetCaptureInfo(side, &status, &other, &same, &from, nullptr, &n));
    EXPECT(status == cudaStreamCaptureStatusActive && other == id && same == g && n == 1 && count_nodes(g) == 1);
    add<<<1, 1, 0, side>>>(x, 5);
    CHECK(cudaEventRecord(mark, side));
    CHECK(cudaStreamWaitEvent(s, mark, 0));
    CHECK(cudaStreamGetCaptureInfo(s, &status, nullptr, nullptr, &from, nullptr, &n));
    EXPECT(n == 2); // its own last node, and the other stream's
    cudaGraphNode_t mine;
    CHECK(cudaGraphAddEmptyNode(&mine, g, from, n)); // a node of the program's own in the middle
    CHECK(cudaStreamUpdateCaptureDependencies(s, &mine, nullptr, 1, cudaStreamSetCaptureDependencies));
    add<<<1, 1, 0, s>>>(x, 10);
    CHECK(cudaStreamEndCapture(s, &same));
    EXPECT(same == g && count_nodes(g) == 4);
    CHECK(cudaStreamIsCapturing(side, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(x) == 16);
    // into a graph that is there
    std::vector<cudaGraphNode_t> nodes(4);
    n = 4;
    CHECK(cudaGraphGetNodes(g, nodes.data(), &n));
    CHECK(cudaStreamBeginCaptureToGraph(s, g, &nodes[3], nullptr, 1, cudaStreamCaptureModeGlobal));
    add<<<1, 1, 0, s>>>(x, 100);
    CHECK(cudaStreamEndCapture(s, &same));
    EXPECT(same == g && count_nodes(g) == 5);
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(x) == 116);
}

static void ended_invalid(cudaStream_t s) {
    cudaStreamCaptureStatus status;
    cudaGraph_t g = (cudaGraph_t)1;
    CHECK(cudaStreamIsCapturing(s, &status));
    EXPECT(status == cudaStreamCaptureStatusInvalidated);
    int *nowhere = nullptr;
    set<<<1, 1, 0, s>>>(nowhere, 1);
    GIVES(cudaErrorStreamCaptureInvalidated, cudaGetLastError());
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
    EXPECT(g == nullptr);
    CHECK(cudaStreamIsCapturing(s, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
}

static void refused() {
    int *x = new_int(3), v;
    void *p;
    cudaStream_t s = new_stream(), side = new_stream(), blocking = new_stream(cudaStreamDefault);
    cudaGraph_t g;
    cudaEvent_t mark, outside;
    cudaStreamCaptureStatus status;
    CHECK(cudaEventCreate(&mark));
    CHECK(cudaEventCreate(&outside));
    CHECK(cudaEventRecord(outside, side));
    const cudaStreamCaptureMode global = cudaStreamCaptureModeGlobal;

    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(nullptr, global)); // the legacy stream
    GIVES(cudaErrorIllegalState, cudaStreamEndCapture(s, &g));
    CHECK(cudaStreamBeginCapture(s, global));
    GIVES(cudaErrorIllegalState, cudaStreamBeginCapture(s, global));
    CHECK(cudaStreamEndCapture(s, &g));

    CHECK(cudaStreamBeginCapture(s, global)); // waiting for what has no time
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s));
    ended_invalid(s);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(s));
    ended_invalid(s);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaDeviceSynchronize());
    ended_invalid(s);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(mark, s));
    GIVES(cudaErrorCapturedEvent, cudaEventQuery(mark));
    ended_invalid(s);
    GIVES(cudaErrorCapturedEvent, cudaEventSynchronize(mark)); // until it is recorded anew
    CHECK(cudaEventRecord(mark, side));
    CHECK(cudaEventSynchronize(mark));

    CHECK(cudaStreamBeginCapture(s, global)); // calls that may wait for the device
    GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 100));
    ended_invalid(s);
    CHECK(cudaStreamBeginCapture(s, global));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaEventQuery(outside));
    ended_invalid(s);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMalloc(&p, 100));
    CHECK(cudaFree(p));
    CHECK(cudaEventQuery(outside));
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaStreamBeginCapture(s, global)); // as PyTorch's allocator does
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == global);
    CHECK(cudaMalloc(&p, 100));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeRelaxed);
    CHECK(cudaStreamEndCapture(s, &g));

    CHECK(cudaStreamBeginCapture(s, global)); // across the border
    GIVES(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(s, outside, 0));
    ended_invalid(s);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); // two captures
    CHECK(cudaStreamBeginCapture(side, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(mark, side));
    GIVES(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(s, mark, 0));
    ended_invalid(s);
    ended_invalid(side);

    CHECK(cudaStreamBeginCapture(s, global)); // a branch that does not come back
    set<<<1, 1, 0, s>>>(x, 4);
    CHECK(cudaEventRecord(mark, s));
    CHECK(cudaStreamWaitEvent(side, mark, 0));
    add<<<1, 1, 0, side>>>(x, 4);
    GIVES(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(side, &g));
    GIVES(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(s, &g));
    EXPECT(!g);
    CHECK(cudaStreamIsCapturing(side, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);

    cudaStream_t gone = new_stream(); // a branch whose stream is destroyed: what counts is that it came back
    CHECK(cudaStreamBeginCapture(s, global));
    CHECK(cudaEventRecord(mark, s));
    CHECK(cudaStreamWaitEvent(gone, mark, 0));
    add<<<1, 1, 0, gone>>>(x, 4);
    CHECK(cudaEventRecord(mark, gone));
    CHECK(cudaStreamWaitEvent(s, mark, 0));
    CHECK(cudaStreamDestroy(gone));
    CHECK(cudaStreamEndCapture(s, &g));
    EXPECT(count_nodes(g) == 1);
    gone = new_stream();
    CHECK(cudaStreamBeginCapture(s, global));
    CHECK(cudaEventRecord(mark, s));
    CHECK(cudaStreamWaitEvent(gone, mark, 0));
    add<<<1, 1, 0, gone>>>(x, 4);
    CHECK(cudaStreamDestroy(gone));
    GIVES(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(s, &g));

    CHECK(cudaStreamBeginCapture(s, global)); // what it fills cannot be destroyed
    add<<<1, 1, 0, s>>>(x, 4);
    const cudaGraphNode_t *last;
    size_t count;
    CHECK(cudaStreamGetCaptureInfo(s, &status, nullptr, &g, &last, nullptr, &count));
    GIVES(cudaErrorInvalidValue, cudaGraphDestroy(g));
    for (int i = 0; i < 3; i++) { // the nodes that it told are given back to it
        CHECK(cudaStreamGetCaptureInfo(s, &status, nullptr, &g, &last, nullptr, &count));
        CHECK(cudaStreamUpdateCaptureDependencies(s, (cudaGraphNode_t *)last, nullptr, count,
                                                  cudaStreamAddCaptureDependencies));
    }
    add<<<1, 1, 0, s>>>(x, 4);
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphDestroy(g));

    CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed)); // the legacy stream would have to wait for it
    GIVES(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(nullptr, &status));
    CHECK(cudaStreamIsCapturing(blocking, &status));
    EXPECT(status == cudaStreamCaptureStatusActive); // asking does no harm
    set<<<1, 1>>>(x, 5);
    GIVES(cudaErrorStreamCaptureImplicit, cudaGetLastError());
    ended_invalid(blocking);
    CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    GIVES(cudaErrorStreamCaptureImplicit, cudaMemcpy(&v, x, 4, cudaMemcpyDeviceToHost));
    ended_invalid(blocking);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); // not for one that does not block
    set<<<1, 1>>>(x, 5);
    EXPECT(device_int(x) == 5);
    CHECK(cudaStreamEndCapture(s, &g));

    cublasHandle_t blas; // a result for the host cannot be waited for
    float dot = 1, *y;
    CHECK(cudaMalloc(&y, 4));
    CHECK(cublasCreate(&blas));
    CHECK(cublasSetStream(blas, s));
    CHECK(cudaStreamBeginCapture(s, global));
    EXPECT(cublasSdot(blas, 1, y, 1, y, 1, &dot) != CUBLAS_STATUS_SUCCESS);
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
    CHECK(cudaDeviceSynchronize()); // nothing is broken
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(cudaStreamLegacy, global));
}

static void threads() {
    int *x = new_int(0);
    cudaStream_t s = new_stream();
    cudaGraph_t g;
    void *p;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    std::thread([&] { GIVES(cudaErrorStreamCaptureWrongThread, cudaStreamEndCapture(s, &g)); }).join();
    std::thread([&] { GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 10)); }).join();
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)); // others may do what they like
    std::thread([&] { CHECK(cudaMalloc(&p, 10)); }).join();
    set<<<1, 1, 0, s>>>(x, 3);
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    std::thread([&] {
        add<<<1, 1, 0, s>>>(x, 4); // of the capture, whoever calls
        CHECK(cudaStreamEndCapture(s, &g));
    }).join();
    EXPECT(count_nodes(g) == 1);
    std::thread([&] { // a thread that ends in a capture of its own stream takes that capture with it
        CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed));
    }).join();
    for (int i = 0; i < 3; i++) {
        cudaStreamCaptureStatus status;
        CHECK(cudaStreamIsCapturing(new_stream(), &status));
        EXPECT(status == cudaStreamCaptureStatusNone);
    }
    std::vector<std::thread> all; // captures and launches side by side
    std::vector<int *> sums;
    for (int i = 0; i < 4; i++) sums.push_back(new_int(0));
    for (int i = 0; i < 4; i++)
        all.emplace_back([&, i] {
            cudaStream_t mine = new_stream();
            for (int round = 0; round < 20; round++) {
                cudaGraph_t graph;
                cudaGraphExec_t exec;
                CHECK(cudaStreamBeginCapture(mine, cudaStreamCaptureModeThreadLocal));
                for (int k = 0; k < 10; k++) add<<<1, 1, 0, mine>>>(sums[i], k);
                CHECK(cudaStreamEndCapture(mine, &graph));
                CHECK(cudaGraphInstantiate(&exec, graph, 0));
                CHECK(cudaGraphDestroy(graph));
                for (int k = 0; k < 3; k++) CHECK(cudaGraphLaunch(exec, mine));
                CHECK(cudaGraphExecDestroy(exec)); // while it runs
            }
            CHECK(cudaStreamSynchronize(mine));
            CHECK(cudaStreamDestroy(mine));
        });
    for (auto &t : all) t.join();
    for (int *sum : sums) EXPECT(device_int(sum) == 20 * 3 * 45);
}

// ---- memory nodes ----

static uint64_t graph_memory(cudaGraphMemAttributeType a) {
    uint64_t v = 0;
    CHECK(cudaDeviceGetGraphMemAttribute(0, a, &v));
    return v;
}

static void memory() {
    const size_t bytes = 1 << 20;
    int *x = new_int(0), *scratch = nullptr;
    cudaStream_t s = new_stream();
    cudaGraph_t g;
    cudaGraphExec_t exec, second;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&scratch, bytes, s)); // a node, and an address at once
    EXPECT(scratch);
    set<<<1, 1, 0, s>>>(scratch, 41);
    CHECK(cudaMemcpyAsync(x, scratch, 4, cudaMemcpyDeviceToDevice, s));
    CHECK(cudaFreeAsync(scratch, s));
    add<<<1, 1, 0, s>>>(x, 1);
    CHECK(cudaStreamEndCapture(s, &g));
    EXPECT(count_nodes(g) == 5);
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    GIVES(cudaErrorNotSupported, cudaGraphInstantiate(&second, g, 0)); // one address, one executable graph
    GIVES(cudaErrorNotSupported, cudaGraphClone(&g, g));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaStreamSynchronize(s));
        EXPECT(device_int(x) == 42);
    }
    EXPECT(graph_memory(cudaGraphMemAttrUsedMemCurrent) == 0 && graph_memory(cudaGraphMemAttrUsedMemHigh) >= bytes &&
           graph_memory(cudaGraphMemAttrReservedMemCurrent) >= bytes);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaDeviceGraphMemTrim(0));
    EXPECT(graph_memory(cudaGraphMemAttrReservedMemCurrent) == 0);
    uint64_t zero = 0;
    CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    EXPECT(graph_memory(cudaGraphMemAttrUsedMemHigh) == 0);

    // left allocated by its graph: the program's to release, or in the way of the next launch
    cudaGraphNode_t alloc, k;
    cudaMemAllocNodeParams p = {};
    p.poolProps.allocType = cudaMemAllocationTypePinned;
    p.poolProps.location.type = cudaMemLocationTypeDevice;
    p.bytesize = bytes;
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphAddMemAllocNode(&alloc, g, nullptr, 0, &p));
    int *kept = (int *)p.dptr, seven = 7;
    void *args[] = {&kept, &seven};
    cudaKernelNodeParams kp = {(void *)set, dim3(1), dim3(1), 0, args, nullptr};
    CHECK(cudaGraphAddKernelNode(&k, g, &alloc, 1, &kp));
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(kept) == 7 && graph_memory(cudaGraphMemAttrUsedMemCurrent) >= bytes);
    GIVES(cudaErrorInvalidValue, cudaGraphLaunch(exec, s));
    CHECK(cudaFreeAsync(kept, s));
    GIVES(cudaErrorInvalidValue, cudaFree(kept));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaFree(kept));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphInstantiate(&exec, g, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
    EXPECT(device_int(kept) == 7);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(g));
    EXPECT(device_int(kept) == 7); // still allocated
    CHECK(cudaFree(kept));
    EXPECT(graph_memory(cudaGraphMemAttrReservedMemCurrent) == 0);
}

static void objects() {
    int ended = 0;
    cudaUserObject_t o;
    cudaGraph_t g, copy;
    cudaGraphExec_t exec;
    CHECK(cudaUserObjectCreate(&o, &ended, Host::count, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphRetainUserObject(g, o, 1, cudaGraphUserObjectMove));
    CHECK(cudaGraphClone(&copy, g));
    CHECK(cudaGraphInstantiate(&exec, g, 0));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaGraphDestroy(copy));
    EXPECT(ended == 0);
    CHECK(cudaGraphExecDestroy(exec));
    EXPECT(ended == 1);
    GIVES(cudaErrorInvalidValue, cudaUserObjectRelease(o, 1));
    CHECK(cudaUserObjectCreate(&o, &ended, Host::count, 2, cudaUserObjectNoDestructorSync));
    CHECK(cudaUserObjectRetain(o, 1));
    CHECK(cudaUserObjectRelease(o, 2));
    EXPECT(ended == 1);
    CHECK(cudaUserObjectRelease(o, 1));
    EXPECT(ended == 2);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)();
    } cases[] = {{"training", training}, {"update", update},   {"built", built},     {"copies", copies},
                 {"order", order},       {"told", told},       {"refused", refused}, {"threads", threads},
                 {"memory", memory},     {"objects", objects}};
    for (auto &c : cases)
        if (argc == 2 && !strcmp(argv[1], c.name)) {
            c.run();
            printf("%s: ok\n", c.name);
            return 0;
        }
    for (auto &c : cases) printf("%s\n", c.name);
    return 2;
}
