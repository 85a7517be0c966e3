/* What the programs of tests/programs/kinds_*.cu share: their options, their account, device memory, products, kernels.
 *
 * One program, `kinds KEY=VALUE…`, trains (or only runs) networks with kernels of its own beside cuBLAS, in many
 * manners. It tells its own account as one JSON object on stdout: each tensor in device memory with the class that it
 * has by the conventions, bytes of each class at the end of each step, FLOPs of the matrix products by step and phase.
 * Matrices lie row by row: x (rows, cols). One thread, one device. */
#ifndef TESTS_KINDS_H
#define TESTS_KINDS_H

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "tests/programs/program_check.h"

/* ---- options (kinds_main.cu) ---- */
const char *text(const char *key);
int number(const char *key);
bool is(const char *key, const char *value);

/* ---- the account (kinds_account.cu) ---- */
enum phase { SETUP, FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, EVALUATION, PHASES };
enum type { F32, BF16, I32 };

/* A tensor in device memory. `row` is its line in the account. */
struct buffer {
    void *at;
    size_t n; /* elements */
    type t;
    int row;
    float *f() const { return (float *)at; }
    __nv_bfloat16 *h() const { return (__nv_bfloat16 *)at; }
    int *i() const { return (int *)at; }
};

size_t type_bytes(type t);
void enter(phase p);
phase phase_now();
void begin_step(); /* the steps are numbered in the order of these calls */
void begin_micro_batch(int rows);
void end_step();  /* behind the last op of the optimizer: notes the bytes of each class */
void drop_step(); /* what has begun is no step of training */
void count_product(long long flops);
void tell_account();

/* Memory of a tensor's own, by cudaMalloc; `lazily` or not, it is in the account from now on until given back. */
buffer make(const char *name, const char *role, size_t n, type t = F32);
void give_back(buffer *b); /* what was born and released within a stretch of one phase was temporary */
void rename_role(const buffer &b, const char *role);
/* Several tensors in one allocation, each at a multiple of `align` bytes. */
struct slab {
    char *at;
    size_t used, bytes, align;
    int allocation;
};
slab make_slab(size_t bytes, size_t align);
buffer carve(slab *s, const char *name, const char *role, size_t n, type t = F32);

/* Working memory of a pass. With alloc=static what is given back is kept for the next request of that name, else each
 * has an allocation of its own. */
buffer work(const char *name, const char *role, size_t n, type t = F32);
void done(buffer *b);

/* ---- products (kinds_account.cu) ---- */
extern cublasHandle_t blas;
/* c (rows, cols) = alpha op(a) op(b) + beta c, `batch` times behind one another; k is what is summed over. */
void multiply(bool ta, bool tb, int rows, int cols, int k, const buffer &a, const buffer &b, float beta,
              const buffer &c, int batch = 1, float alpha = 1);

/* ---- kernels (kinds_kernels.cu); b.n elements where no size is given ---- */
void k_fill(const buffer &x, float value);
void k_scale(const buffer &x, float factor);
void k_cast(const buffer &to, const buffer &from);
void k_add(const buffer &y, const buffer &a, const buffer &b);
void k_add_into(const buffer &y, const buffer &a);
void k_mix(const buffer &y, float p, const buffer &a, float q, const buffer &b);
void k_bias(const buffer &y, const buffer &b, int rows, int cols);
void k_bias_grad(const buffer &db, const buffer &dy, int rows, int cols, bool accumulate);
void k_gelu(const buffer &y, const buffer &x);
void k_gelu_grad(const buffer &dx, const buffer &x, const buffer &dy);
void k_layernorm(const buffer &y, const buffer &mean, const buffer &rstd, const buffer &x, const buffer &w,
                 const buffer &b, int rows, int cols);
void k_layernorm_grad(const buffer &dx, const buffer &dy, const buffer &x, const buffer &w, const buffer &mean,
                      const buffer &rstd, int rows, int cols);
void k_layernorm_grad_params(const buffer &dw, const buffer &db, const buffer &dy, const buffer &x, const buffer &mean,
                             const buffer &rstd, int rows, int cols, bool accumulate);
void k_batchnorm(const buffer &y, const buffer &mean, const buffer &rstd, const buffer &run_mean, const buffer &run_var,
                 const buffer &x, const buffer &w, const buffer &b, int rows, int cols);
void k_batchnorm_eval(const buffer &y, const buffer &x, const buffer &run_mean, const buffer &run_var, const buffer &w,
                      const buffer &b, int rows, int cols);
void k_batchnorm_grad(const buffer &dx, const buffer &dw, const buffer &db, const buffer &dy, const buffer &x,
                      const buffer &w, const buffer &mean, const buffer &rstd, int rows, int cols, bool accumulate);
void k_embed(const buffer &y, const buffer &table, const buffer &places, const buffer &tokens, int rows, int cols,
             int seq);
void k_embed_grad(const buffer &dtable, const buffer &dy, const buffer &tokens, int rows, int cols);
void k_places_grad(const buffer &dplaces, const buffer &dy, int rows, int cols, int seq, bool accumulate);
void k_softmax_causal(const buffer &p, const buffer &s, int rows, int cols);
void k_softmax_grad(const buffer &ds, const buffer &p, const buffer &dp, int rows, int cols);
void k_loss(const buffer &losses, const buffer &logits, const buffer &targets, int rows, int cols);
void k_loss_grad(const buffer &dlogits, const buffer &logits, const buffer &targets, const buffer &dloss, int rows,
                 int cols);
void k_loss_fused(const buffer &dlogits, const buffer &losses, const buffer &logits, const buffer &targets, int rows,
                  int cols, float scale); /* dlogits may be logits */
void k_mean(const buffer &mean, const buffer &x, int n);
void k_square_error(const buffer &losses, const buffer &dy, const buffer &y, const buffer &x, int rows, int cols);
void k_judge(const buffer &losses, const buffer &dy, const buffer &y, float target, int rows);
void k_conv(const buffer &y, const buffer &x, const buffer &w, int images, int in, int out, int side);
void k_conv_grad_input(const buffer &dx, const buffer &dy, const buffer &w, int images, int in, int out, int side);
void k_conv_grad_weight(const buffer &dw, const buffer &dy, const buffer &x, int images, int in, int out, int side,
                        bool accumulate);
void k_append(const buffer &cache, const buffer &x, int sequences, int place, int room, int cols);
void k_attend(const buffer &y, const buffer &q, const buffer &keys, const buffer &values, int sequences, int count,
              int room, int cols);

void k_sgd(const buffer &w, const buffer &g, float rate);
void k_momentum(const buffer &w, const buffer &g, const buffer &m, float rate);
void k_adamw(const buffer &w, const buffer &g, const buffer &m, const buffer &v, float rate, int step, size_t n = 0);
void k_adamw_master(const buffer &w, const buffer &master, const buffer &g, const buffer &m, const buffer &v,
                    float rate, int step);
void k_ema(const buffer &average, const buffer &w, float keep);
void k_square_norm(const buffer &norm, const buffer &g);
void k_clip(const buffer &g, const buffer &norm, float most);
void k_unscale(const buffer &g, const buffer &flag, float factor);
/* Lists: memory behind pointers that lie in the launch's arguments, as many tensors a launch as fit. */
enum list_op { LIST_LERP, LIST_SQUARES, LIST_ROOT, LIST_QUOTIENT, LIST_SCALE, LIST_SGD };
void k_list(list_op op, const std::vector<buffer> &x, const std::vector<buffer> &y, const std::vector<buffer> &z,
            float a);
void k_list_adamw(const std::vector<buffer> &w, const std::vector<buffer> &g, const std::vector<buffer> &m,
                  const std::vector<buffer> &v, float rate, int step);

/* ---- networks (kinds_network.cu) ---- */
struct parameter {
    const char *name;
    int rows, cols; /* cols 1: a vector */
    bool trained;
    float scale; /* of its random start; 0: all 1 */
    bool begun;  /* backward has written its gradient in this step */
    buffer w;    /* what the network reads: fp32, or bf16 beside a master */
    buffer g;    /* at NULL: none yet */
    buffer cast; /* autocast: its bf16 copy in this pass */
    buffer master, m, v, average, backup;
    size_t n() const { return (size_t)rows * cols; }
};
typedef std::shared_ptr<parameter> param;

/* A tensor of the network with its gradient. Released with the last that refers to it. */
struct value {
    buffer data, grad;
    int rows, cols;
    bool needs; /* a gradient */
    bool keeps; /* its memory is somebody else's: inputs */
    ~value();
};
typedef std::shared_ptr<value> tensor;

/* A pass: what backward has to do, in order. */
struct tape {
    std::vector<std::function<void()>> back;
    bool training;
};
extern tape *pass;

tensor input_tensor(const buffer &b, int rows, int cols);
tensor linear(tensor x, param w, param bias, bool transposed = false);
tensor low_rank(tensor x, tensor y, param a, param b); /* y + x aᵀ bᵀ, into y */
tensor gelu(tensor x);
tensor gelu_linear(tensor x, param w, param bias); /* gelu is made again in backward */
tensor layernorm(tensor x, param w, param b);
tensor batchnorm(tensor x, param w, param b, const buffer &run_mean, const buffer &run_var);
tensor embed(const buffer &tokens, param table, param places, int rows, int seq);
tensor attention(tensor q, tensor k, tensor v, int sequences, int seq);
tensor add(tensor a, tensor b);
tensor convolution(tensor x, param w, int images, int in, int out, int side);
/* Runs f without keeping what it makes, and again in backward. */
tensor recomputed(tensor x, std::function<tensor(tensor)> f);
void cross_entropy(tensor logits, const buffer &targets, float scale);
void square_error(tensor y, const buffer &x);
void judge(tensor y, float target); /* squared distance from a constant */
void run_backward(std::function<void()> after_each = nullptr);
void forget_pass();

/* ---- parameters and optimizers (kinds_optimizer.cu) ---- */
typedef std::vector<param> params;
param ask_param(params *all, const char *name, int rows, int cols, bool trained = true, float scale = 0.5f);
void build_params(params *all);           /* memory for all that were asked for */
buffer gradient_of(param p, bool *fresh); /* the memory that backward adds to; fresh: what is there is nothing yet */
void add_gradient(param p, std::function<void(const buffer &, bool)> write);
const buffer &plain(param p);   /* the weight, or its average while that is evaluated */
const buffer &operand(param p); /* what products read: the weight, or its cast */
void drop_casts(const params &all);
void clear_gradients(const params &all); /* at a step's beginning */
void decay(const params &all);
bool overflows(const params &all, bool so); /* unscales the gradients and asks for the flag */
void clip(const params &all);
void optimize(const params &all, int step);
void optimize_one(param p, int step);
void release_params(params *all);
void use_average(bool so);
void swap_average(const params &all, bool in);
void save(const params &all);

/* ---- programs ---- */
void train_network();                   /* kinds_train.cu */
void special_program(const char *name); /* kinds_special.cu */
void cut_off();                         /* tells the account and dies */
void upload(const buffer &to, float scale, unsigned seed);
void upload_tokens(const buffer &to, int vocabulary, unsigned seed);
void read_host(const buffer &from, int n);
#endif
