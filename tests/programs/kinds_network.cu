/* Networks, differentiated by a tape: each layer leaves on it what backward has to do. */
#include "tests/programs/kinds.h"

tape *pass;

value::~value() {
    if (grad.at) done(&grad);
    if (!keeps && data.at) done(&data);
}

/* Does the program cast for its products, and keep everything else in fp32? */
static bool autocast() {
    return is("dtype", "autocast");
}

static tensor new_value(const char *name, int rows, int cols, bool needs, type t) {
    tensor v = std::make_shared<value>();
    v->data = work(name, "activation", (size_t)rows * cols, t);
    v->grad = buffer{};
    v->rows = rows, v->cols = cols, v->needs = needs, v->keeps = false;
    return v;
}

tensor input_tensor(const buffer &b, int rows, int cols) {
    tensor v = std::make_shared<value>();
    v->data = b;
    v->grad = buffer{};
    v->rows = rows, v->cols = cols, v->needs = false, v->keeps = true;
    return v;
}

static void on_backward(std::function<void()> f) {
    if (pass && pass->training) pass->back.push_back(f);
}

/* Has the layer to be differentiated? */
static bool taped(bool needs) {
    return needs && pass && pass->training;
}

/* The gradient of x gets what `write` makes: in place where it is the first, else added. */
static void give_gradient(tensor x, std::function<void(const buffer &)> write) {
    if (!x->needs) return;
    buffer g = work("dx", "activation_grad", x->data.n, x->data.t);
    write(g);
    if (!x->grad.at) {
        x->grad = g;
        return;
    }
    k_add_into(x->grad, g);
    done(&g);
}

/* ---- linear: y (rows, out) = x (rows, in) wᵀ + bias, w (out, in); transposed: y = x w ---- */
static buffer cast_of(const buffer &x, bool *made) {
    *made = autocast() && x.t == F32;
    if (!*made) return x;
    buffer c = work("cast", "activation", x.n, BF16);
    k_cast(c, x);
    return c;
}

static void linear_backward(tensor x, const buffer &xc, tensor y, param w, param bias, bool transposed) {
    int in = x->cols, out = y->cols, rows = x->rows;
    auto input = [&]() {
        give_gradient(x, [&](const buffer &g) {
            bool other = g.t != y->grad.t; /* autocast: the product is bf16, what it is wanted for fp32 */
            buffer to = other ? work("dx_half", "activation_grad", g.n, BF16) : g;
            multiply(false, transposed, rows, in, out, y->grad, operand(w), 0, to);
            if (!other) return;
            k_cast(g, to);
            done(&to);
        });
    };
    if (is("dx", "first")) input();
    if (w->trained)
        add_gradient(w, [&](const buffer &g, bool fresh) {
            if (transposed)
                multiply(true, false, in, out, rows, xc, y->grad, fresh ? 0.f : 1.f, g);
            else
                multiply(true, false, out, in, rows, y->grad, xc, fresh ? 0.f : 1.f, g);
        });
    if (bias && bias->trained)
        add_gradient(bias, [&](const buffer &g, bool fresh) { k_bias_grad(g, y->grad, rows, out, !fresh); });
    if (!is("dx", "first")) input();
}

tensor linear(tensor x, param w, param bias, bool transposed) {
    int out = transposed ? w->cols : w->rows;
    bool made, needs = x->needs || w->trained || (bias && bias->trained);
    buffer xc = cast_of(x->data, &made);
    tensor y = new_value("linear", x->rows, out, needs, xc.t);
    multiply(false, !transposed, x->rows, out, x->cols, xc, operand(w), 0, y->data);
    if (bias) k_bias(y->data, operand(bias), x->rows, out);
    if (taped(needs))
        on_backward([=]() mutable {
            if (!y->grad.at) return;
            linear_backward(x, xc, y, w, bias, transposed);
            if (made) done(&xc);
        });
    else if (made)
        done(&xc);
    return y;
}

tensor low_rank(tensor x, tensor y, param a, param b) {
    int r = a->rows, in = x->cols, out = y->cols, rows = x->rows;
    tensor h = new_value("low_rank", rows, r, true, F32);
    multiply(false, true, rows, r, in, x->data, a->w, 0, h->data);
    multiply(false, true, rows, out, r, h->data, plain(b), 1, y->data);
    y->needs = true;
    if (taped(true))
        on_backward([=]() {
            if (!y->grad.at) return;
            buffer dh = work("dh", "activation_grad", (size_t)rows * r);
            multiply(false, false, rows, r, out, y->grad, plain(b), 0, dh);
            add_gradient(b, [&](const buffer &g, bool fresh) {
                multiply(true, false, out, r, rows, y->grad, h->data, fresh ? 0.f : 1.f, g);
            });
            give_gradient(x, [&](const buffer &g) { multiply(false, false, rows, in, r, dh, a->w, 0, g); });
            add_gradient(a, [&](const buffer &g, bool fresh) {
                multiply(true, false, r, in, rows, dh, x->data, fresh ? 0.f : 1.f, g);
            });
            done(&dh);
        });
    return y;
}

/* ---- others ---- */
tensor gelu(tensor x) {
    tensor y = new_value("gelu", x->rows, x->cols, x->needs, x->data.t);
    k_gelu(y->data, x->data);
    if (taped(x->needs))
        on_backward([=]() { give_gradient(x, [&](const buffer &g) { k_gelu_grad(g, x->data, y->grad); }); });
    return y;
}

tensor gelu_linear(tensor x, param w, param bias) {
    tape *outer = pass;
    pass = NULL;
    tensor y = linear(gelu(x), w, bias);
    pass = outer;
    y->needs = true;
    if (taped(true))
        on_backward([=]() {
            enter(RECOMPUTE);
            tensor h = new_value("gelu", x->rows, x->cols, true, x->data.t);
            k_gelu(h->data, x->data);
            enter(BACKWARD);
            linear_backward(h, h->data, y, w, bias, false);
            give_gradient(x, [&](const buffer &g) { k_gelu_grad(g, x->data, h->grad); });
        });
    return y;
}

tensor layernorm(tensor x, param w, param b) {
    tensor y = new_value("layernorm", x->rows, x->cols, x->needs || w->trained, autocast() ? F32 : x->data.t);
    buffer mean = work("mean", "activation", x->rows), rstd = work("rstd", "activation", x->rows);
    k_layernorm(y->data, mean, rstd, x->data, plain(w), plain(b), x->rows, x->cols);
    if (!taped(y->needs)) {
        done(&mean), done(&rstd);
        return y;
    }
    on_backward([=]() mutable {
        if (w->trained) {
            bool fresh, fresh_b;
            buffer dw = gradient_of(w, &fresh), db = gradient_of(b, &fresh_b);
            k_layernorm_grad_params(dw, db, y->grad, x->data, mean, rstd, x->rows, x->cols, !fresh);
        }
        give_gradient(
            x, [&](const buffer &g) { k_layernorm_grad(g, y->grad, x->data, plain(w), mean, rstd, x->rows, x->cols); });
        done(&mean), done(&rstd);
    });
    return y;
}

tensor batchnorm(tensor x, param w, param b, const buffer &run_mean, const buffer &run_var) {
    tensor y = new_value("batchnorm", x->rows, x->cols, true, F32);
    buffer mean = work("mean", "activation", x->cols), rstd = work("rstd", "activation", x->cols);
    if (!taped(true)) {
        k_batchnorm_eval(y->data, x->data, run_mean, run_var, plain(w), plain(b), x->rows, x->cols);
        done(&mean), done(&rstd);
        return y;
    }
    k_batchnorm(y->data, mean, rstd, run_mean, run_var, x->data, plain(w), plain(b), x->rows, x->cols);
    on_backward([=]() mutable {
        bool fresh, fresh_b;
        buffer dw = gradient_of(w, &fresh), db = gradient_of(b, &fresh_b);
        give_gradient(x, [&](const buffer &g) {
            k_batchnorm_grad(g, dw, db, y->grad, x->data, plain(w), mean, rstd, x->rows, x->cols, !fresh);
        });
        done(&mean), done(&rstd);
    });
    return y;
}

tensor embed(const buffer &tokens, param table, param places, int rows, int seq) {
    int cols = table->cols;
    tensor y = new_value("embedded", rows, cols, table->trained, table->w.t);
    k_embed(y->data, plain(table), plain(places), tokens, rows, cols, seq);
    if (taped(y->needs))
        on_backward([=]() {
            bool fresh, fresh_p;
            buffer dt = gradient_of(table, &fresh);
            if (fresh) CHECK(cudaMemsetAsync(dt.at, 0, dt.n * type_bytes(dt.t), 0));
            k_embed_grad(dt, y->grad, tokens, rows, cols);
            buffer dp = gradient_of(places, &fresh_p);
            if (fresh_p && places->rows > seq) { /* further places get none */
                CHECK(cudaMemsetAsync(dp.at, 0, dp.n * type_bytes(dp.t), 0));
                fresh_p = false;
            }
            k_places_grad(dp, y->grad, rows, cols, seq, !fresh_p);
        });
    return y;
}

tensor attention(tensor q, tensor k, tensor v, int sequences, int seq) {
    int cols = q->cols, rows = q->rows;
    size_t n = (size_t)sequences * seq * seq;
    float scale = 1.f / (float)cols;
    tensor y = new_value("attention", rows, cols, true, F32);
    buffer s = work("scores", "activation", n), p = work("weights", "activation", n);
    multiply(false, true, seq, seq, cols, q->data, k->data, 0, s, sequences, scale);
    k_softmax_causal(p, s, sequences * seq, seq);
    multiply(false, false, seq, cols, seq, p, v->data, 0, y->data, sequences);
    done(&s);
    if (!taped(true)) {
        done(&p);
        return y;
    }
    on_backward([=]() mutable {
        buffer dp = work("dweights", "activation_grad", n), ds = work("dscores", "activation_grad", n);
        multiply(false, true, seq, seq, cols, y->grad, v->data, 0, dp, sequences);
        give_gradient(v, [&](const buffer &g) { multiply(true, false, seq, cols, seq, p, y->grad, 0, g, sequences); });
        k_softmax_grad(ds, p, dp, sequences * seq, seq);
        done(&dp), done(&p);
        give_gradient(
            q, [&](const buffer &g) { multiply(false, false, seq, cols, seq, ds, k->data, 0, g, sequences, scale); });
        give_gradient(
            k, [&](const buffer &g) { multiply(true, false, seq, cols, seq, ds, q->data, 0, g, sequences, scale); });
        done(&ds);
    });
    return y;
}

tensor add(tensor a, tensor b) {
    tensor y = new_value("sum", a->rows, a->cols, a->needs || b->needs, a->data.t);
    k_add(y->data, a->data, b->data);
    if (taped(y->needs))
        on_backward([=]() {
            for (tensor x : {a, b}) {
                if (!x->needs) continue;
                if (x->grad.at)
                    k_add_into(x->grad, y->grad);
                else {
                    x->grad = work("dsum", "activation_grad", y->grad.n, y->grad.t);
                    CHECK(cudaMemcpyAsync(x->grad.at, y->grad.at, y->grad.n * type_bytes(y->grad.t),
                                          cudaMemcpyDeviceToDevice, 0));
                }
            }
        });
    return y;
}

tensor convolution(tensor x, param w, int images, int in, int out, int side) {
    tensor y = new_value("convolved", images, out * side * side, true, F32);
    k_conv(y->data, x->data, plain(w), images, in, out, side);
    if (taped(true))
        on_backward([=]() {
            give_gradient(x, [&](const buffer &g) { k_conv_grad_input(g, y->grad, plain(w), images, in, out, side); });
            add_gradient(w, [&](const buffer &g, bool fresh) {
                k_conv_grad_weight(g, y->grad, x->data, images, in, out, side, !fresh);
            });
        });
    return y;
}

tensor recomputed(tensor x, std::function<tensor(tensor)> f) {
    if (!pass || !pass->training) return f(x);
    tape *outer = pass;
    pass = NULL;
    tensor y = f(x);
    pass = outer;
    y->needs = true;
    on_backward([=]() {
        tape inner = {{}, true}, *now = pass;
        enter(RECOMPUTE);
        pass = &inner;
        tensor again = f(x);
        enter(BACKWARD);
        again->grad = y->grad; /* handed on */
        y->grad.at = NULL;
        run_backward();
        pass = now;
    });
    return y;
}

/* ---- losses: loss=autograd (a scalar's gradient of 1 comes first), fused (the gradient is made in forward), in_place
 * ---- */
static void read_loss(const buffer &losses, int rows) {
    buffer mean = work("loss", "activation", 1);
    k_mean(mean, losses, rows);
    read_host(mean, 1);
    done(&mean);
}

void cross_entropy(tensor logits, const buffer &targets, float scale) {
    int rows = logits->rows, cols = logits->cols;
    buffer losses = work("losses", "activation", (size_t)rows);
    bool training = pass && pass->training;
    if (!training || is("loss", "autograd")) {
        k_loss(losses, logits->data, targets, rows, cols);
        read_loss(losses, rows);
        done(&losses);
        if (!training) return;
        on_backward([=]() mutable {
            buffer one = work("one", "activation_grad", 1);
            k_fill(one, scale);
            logits->grad = work("dlogits", "activation_grad", logits->data.n, logits->data.t);
            k_loss_grad(logits->grad, logits->data, targets, one, rows, cols);
            done(&one);
        });
        return;
    }
    buffer d =
        is("loss", "in_place") ? logits->data : work("dlogits", "activation_grad", logits->data.n, logits->data.t);
    k_loss_fused(d, losses, logits->data, targets, rows, cols, scale / (float)rows);
    read_loss(losses, rows);
    done(&losses);
    if (is("loss", "in_place")) logits->keeps = true; /* the gradient has the memory now */
    logits->grad = d;
    on_backward([=]() { (void)logits; });
}

static void fused_loss(tensor y, std::function<void(const buffer &, const buffer &)> kernel) {
    buffer losses = work("losses", "activation", (size_t)y->rows);
    buffer d = work("dy", "activation_grad", y->data.n);
    kernel(losses, d);
    read_loss(losses, y->rows);
    done(&losses);
    if (pass && pass->training) {
        y->grad = d;
        on_backward([=]() { (void)y; });
    } else {
        done(&d);
    }
}
void square_error(tensor y, const buffer &x) {
    fused_loss(y,
               [&](const buffer &losses, const buffer &d) { k_square_error(losses, d, y->data, x, y->rows, y->cols); });
}
void judge(tensor y, float target) {
    fused_loss(y, [&](const buffer &losses, const buffer &d) { k_judge(losses, d, y->data, target, y->rows); });
}

void run_backward(std::function<void()> after_each) {
    while (!pass->back.empty()) {
        std::function<void()> f = pass->back.back();
        pass->back.pop_back();
        f();
        f = nullptr; /* releases what it kept */
        if (after_each) after_each();
    }
}

void forget_pass() {
    while (!pass->back.empty()) pass->back.pop_back();
}
