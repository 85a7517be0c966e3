/* Programs whose loops differ from kinds_train.cu's. */
#include <stdlib.h>
#include <string.h>
#include "tests/programs/kinds.h"

static buffer x, targets;

static int B() {
    return number("batch") * number("seq");
}
static int D() {
    return number("dim");
}

/* One pass: f makes the network's output and its loss. */
static void differentiate(std::function<void()> f) {
    tape t = {{}, true};
    enter(FORWARD);
    pass = &t;
    f();
    enter(BACKWARD);
    run_backward();
    pass = NULL;
}

static void update(params *all, int s) {
    enter(OPTIMIZER);
    optimize(*all, s + 1);
    end_step();
    enter(SETUP);
}

/* ---- a generator and its judge, in turn; the generator's step goes back through the judge ---- */
struct two_layers {
    params all;
    param w1, b1, w2, b2;
};
static void ask_two(two_layers *n, int in, int hidden, int out) {
    n->w1 = ask_param(&n->all, "w1", hidden, in);
    n->b1 = ask_param(&n->all, "b1", hidden, 1);
    n->w2 = ask_param(&n->all, "w2", out, hidden);
    n->b2 = ask_param(&n->all, "b2", out, 1);
    build_params(&n->all);
}
static tensor run_two(const two_layers &n, tensor t) {
    return linear(gelu(linear(t, n.w1, n.b1)), n.w2, n.b2);
}

static void set_trained(params *all, bool so) {
    for (const param &p : *all) p->trained = so;
}

static void gan() {
    two_layers g, d;
    int rows = B();
    ask_two(&g, 16, 48, D());
    ask_two(&d, D(), 40, 1);
    x = make("x", "input", (size_t)rows * D());
    buffer noise = make("noise", "input", (size_t)rows * 16);
    for (int s = 0; s < number("steps"); s++) {
        begin_step(); /* the judge's: a real batch, and a made one that is not differentiated */
        clear_gradients(d.all);
        upload(x, 1, (unsigned)s);
        begin_micro_batch(rows);
        differentiate([&]() { judge(run_two(d, input_tensor(x, rows, D())), 1); });
        upload(noise, 1, 100 + (unsigned)s);
        begin_micro_batch(rows);
        differentiate([&]() {
            set_trained(&g.all, false);
            tensor made = run_two(g, input_tensor(noise, rows, 16));
            set_trained(&g.all, true);
            judge(run_two(d, made), 0);
        });
        update(&d.all, s);
        begin_step(); /* the generator's */
        clear_gradients(g.all);
        begin_micro_batch(rows);
        differentiate([&]() {
            tensor made = run_two(g, input_tensor(noise, rows, 16));
            set_trained(&d.all, false);
            judge(run_two(d, made), 1);
        });
        set_trained(&d.all, true);
        update(&g.all, s);
    }
}

/* ---- y = gelu(gelu(x wᵀ) vᵀ) w: the weight of the first layer is the last one's, the other way round ---- */
static void autoencoder() {
    params all;
    int rows = B(), hidden = 24;
    param w = ask_param(&all, "w", hidden, D()), v = ask_param(&all, "v", hidden, hidden),
          b = ask_param(&all, "b", hidden, 1);
    build_params(&all);
    x = make("x", "input", (size_t)rows * D());
    for (int s = 0; s < number("steps"); s++) {
        begin_step();
        clear_gradients(all);
        upload(x, 1, (unsigned)s);
        begin_micro_batch(rows);
        differentiate([&]() {
            tensor h = gelu(linear(input_tensor(x, rows, D()), w, b));
            h = gelu(linear(h, v, NULL));
            square_error(linear(h, w, NULL, true), x);
        });
        update(&all, s);
    }
}

/* ---- two networks, unrelated ---- */
static void train_two(two_layers *n, int in, int classes, int s) {
    begin_step();
    clear_gradients(n->all);
    upload(x, 1, (unsigned)s);
    upload_tokens(targets, classes, (unsigned)s);
    begin_micro_batch(B());
    differentiate([&]() { cross_entropy(run_two(*n, input_tensor(x, B(), in)), targets, 1); });
    update(&n->all, s);
}

static void one_after_another() {
    for (int m = 0; m < number("layers"); m++) {
        two_layers n;
        int in = D() + 16 * m, classes = 24 + 8 * m;
        ask_two(&n, in, 48, classes);
        x = make("x", "input", (size_t)B() * in);
        targets = make("targets", "input", (size_t)B(), I32);
        for (int s = 0; s < number("steps"); s++) train_two(&n, in, classes, s);
        clear_gradients(n.all);
        release_params(&n.all);
        give_back(&x), give_back(&targets);
    }
}

static void in_turn() {
    two_layers a, b;
    ask_two(&a, D(), 48, 24);
    ask_two(&b, D(), 40, 36);
    x = make("x", "input", (size_t)B() * D());
    targets = make("targets", "input", (size_t)B(), I32);
    for (int s = 0; s < number("steps"); s++) {
        train_two(&a, D(), 24, s);
        train_two(&b, D(), 36, s);
    }
}

/* ---- inference: weights come by copies from the host and stay as they are ---- */
static void infer() {
    two_layers n;
    param w3 = ask_param(&n.all, "w3", D(), D()), b3 = ask_param(&n.all, "b3", D(), 1);
    ask_two(&n, D(), 48, 24);
    x = make("x", "input", (size_t)B() * D());
    for (int s = 0; s < number("steps"); s++) {
        begin_step();
        begin_micro_batch(B());
        enter(FORWARD);
        upload(x, 1, (unsigned)s);
        tensor y = run_two(n, gelu(linear(input_tensor(x, B(), D()), w3, b3)));
        read_host(y->data, 24);
        y = NULL;
        end_step();
    }
}

/* A token a pass; keys and values of those before are kept. */
static void infer_with_cache() {
    params all;
    int sequences = number("batch"), room = 12, d = D();
    param q = ask_param(&all, "q", d, d), k = ask_param(&all, "k", d, d), v = ask_param(&all, "v", d, d),
          o = ask_param(&all, "o", d, d), head = ask_param(&all, "head", 40, d);
    build_params(&all);
    x = make("x", "input", (size_t)sequences * d);
    size_t n = (size_t)sequences * room * d;
    buffer keys = make("keys", "activation", n), values = make("values", "activation", n);
    for (int s = 0; s < number("steps"); s++) {
        begin_step();
        begin_micro_batch(sequences);
        enter(FORWARD);
        upload(x, 1, (unsigned)s);
        tensor in = input_tensor(x, sequences, d);
        tensor qs = linear(in, q, NULL), ks = linear(in, k, NULL), vs = linear(in, v, NULL);
        k_append(keys, ks->data, sequences, s, room, d);
        k_append(values, vs->data, sequences, s, room, d);
        buffer mixed = work("mixed", "activation", (size_t)sequences * d);
        k_attend(mixed, qs->data, keys, values, sequences, s + 1, room, d);
        tensor y = linear(linear(input_tensor(mixed, sequences, d), o, NULL), head, NULL);
        read_host(y->data, 40);
        done(&mixed);
        qs = ks = vs = y = NULL;
        end_step();
    }
}

void special_program(const char *name) {
    static const struct {
        const char *name;
        void (*run)();
    } programs[] = {
        {"gan", gan},     {"autoencoder", autoencoder}, {"one_after_another", one_after_another}, {"in_turn", in_turn},
        {"infer", infer}, {"cache", infer_with_cache}};
    for (auto &p : programs)
        if (!strcmp(p.name, name)) {
            p.run();
            return;
        }
    fprintf(stderr, "kinds: no program %s\n", name);
    exit(2);
}
