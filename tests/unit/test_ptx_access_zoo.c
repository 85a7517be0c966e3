/* What the access analysis says of the zoo's kernels against what the interpreter saw them touch. Sound: whatever was
 * touched is said. Exact: nothing else is said, but where the analysis says itself that it does not know. */
#include "ptx/ptx_access.h"
#include "tests/zoo/zoo_interpret.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int problems, exact;
static const char *where;

__attribute__((format(printf, 1, 2))) static void problem(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_error("%s: %s\n", where, text);
    problems++;
}

/* ---- what was touched ---- */
struct extent {
    int64_t lo, hi; /* [lo, hi); lo == hi: nothing */
};
struct seen {
    int mode;         /* PTX_ACCESS_* */
    bool atomic, all; /* all: every byte of the extent */
    struct extent any, read, write;
};

static struct extent extent_of(const struct zoo_touched *t, int properties) {
    struct extent e = {0, 0};
    for (size_t k = 0; k < t->bytes; k++) {
        if (!(t->how[k] & properties)) continue;
        if (e.lo == e.hi) e.lo = (int64_t)k;
        e.hi = (int64_t)k + 1;
    }
    return e;
}

static struct seen look(const struct zoo_touched *t) {
    struct seen s = {.any = extent_of(t, PTX_P_READS | PTX_P_WRITES),
                     .read = extent_of(t, PTX_P_READS),
                     .write = extent_of(t, PTX_P_WRITES),
                     .all = true};
    s.mode = (s.read.lo < s.read.hi ? PTX_ACCESS_R : 0) | (s.write.lo < s.write.hi ? PTX_ACCESS_W : 0);
    for (int64_t k = s.any.lo; k < s.any.hi; k++) {
        s.all &= t->how[k] != 0;
        s.atomic |= (t->how[k] & PTX_P_ATOMIC) != 0;
    }
    return s;
}

/* ---- against what is said ---- */
static const struct ptx_access *slot_at(const struct ptx_accesses *a, int32_t var, uint32_t offset) {
    for (int32_t k = 0; k < a->slots; k++)
        if (var >= 0 ? a->slot[k].var == var : a->slot[k].var < 0 && a->slot[k].offset == offset) return &a->slot[k];
    return NULL;
}

static void check_extent(const char *what, struct extent seen, int64_t lo, int64_t hi, const char *name) {
    if (seen.lo < seen.hi && (seen.lo < lo || seen.hi > hi))
        problem("%s: %s [%lld, %lld), said [%lld, %lld)", name, what, (long long)seen.lo, (long long)seen.hi,
                (long long)lo, (long long)hi);
}

static void check_slot(const struct ptx_accesses *a, const struct ptx_access *slot, const struct seen *s,
                       const char *name, bool extents) {
    int said = slot ? slot->mode : 0;
    bool excused = a->unknown && (!(s->mode & ~said & PTX_ACCESS_W) || a->unknown_writes);
    if (s->mode & ~said && !excused) problem("%s: touched %d, said %d", name, s->mode, said);
    /* sincosf's table, which it reads for large arguments only. */
    bool rare = !strncmp(name, "__cudart_i2opi", 14) && said == PTX_ACCESS_R;
    if (said & ~s->mode && extents && !slot->may_be && !rare) problem("%s: said %d, touched %d", name, said, s->mode);
    if (!slot || !s->mode) return;
    if (s->atomic && !slot->atomic && !a->unknown) problem("%s: by atomics, which is not said", name);
    if (!extents || !slot->extent_known || a->unknown) return;
    check_extent("touched", s->any, slot->lo, slot->hi, name);
    check_extent("read", s->read, slot->read_lo, slot->read_hi, name);
    exact += s->any.lo == slot->lo && s->any.hi == slot->hi;
    check_extent("written", s->write, slot->write_lo, slot->write_hi, name);
    if (slot->dense && (s->any.lo != slot->lo || s->any.hi != slot->hi || !s->all))
        problem("%s: dense, but touched [%lld, %lld)%s of [%lld, %lld)", name, (long long)s->any.lo,
                (long long)s->any.hi, s->all ? "" : " with gaps", (long long)slot->lo, (long long)slot->hi);
}

static void check_all(const struct zoo_module *m, const struct zoo_case *c, const struct zoo_launch *l,
                      const struct ptx_accesses *a, bool extents) {
    for (int k = 0; k < c->args; k++) {
        char name[32];
        if (!l->buffer[k]) continue;
        struct seen s = look(&l->touched[k]);
        snprintf(name, sizeof name, "argument %d", k);
        check_slot(a, slot_at(a, -1, (uint32_t)l->offset[k]), &s, name, extents);
    }
    for (int32_t v = 0; v < m->ptx->var_count; v++) {
        if (m->ptx->vars[v].space != PTX_GLOBAL) continue; /* const memory belongs to no slot */
        struct seen s = look(&m->variable[v]);
        check_slot(a, slot_at(a, v, 0), &s, m->ptx->vars[v].name, extents);
    }
}

/* ---- what the sets as a whole are worth: counted over all kernels ---- */
static int slots, unknown, known_extents, dense, may_be;

/* Pointers in memory, calls through pointers and recursion are what it does not follow. */
static bool may_be_unknown(void) {
    static const char *const names[] = {"generic_pointers", "device_globals", "indirect_calls", "recursion"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!strcmp(where, names[k])) return true;
    return false;
}

static void count(const struct ptx_accesses *a) {
    unknown += a->unknown;
    if (a->unknown && !may_be_unknown()) problem("unknown: %s", a->why);
    if (a->unknown && !*a->why) problem("unknown, and no word of why");
    for (int32_t k = 0; k < a->slots; k++) {
        slots++;
        known_extents += a->slot[k].extent_known;
        dense += a->slot[k].dense;
        may_be += a->slot[k].may_be;
    }
}

static void check_case(struct zoo_module *m, const struct zoo_case *c) {
    struct zoo_launch l;
    struct ptx_accesses a;
    char err[512];
    where = c->name;
    const struct ptx_function *f = ptx_function_find(m->ptx, c->kernel);
    if (zoo_interpret(m, c, &l, err, sizeof err)) fail_msg("%s", err);
    if (ptx_access_static(m->ptx, f, &a)) fail_msg("%s: %s", c->name, a.why);
    check_all(m, c, &l, &a, false);
    ptx_access_free(&a);
    if (ptx_access_launch(m->ptx, f, c->grid, c->block, l.params, &a)) fail_msg("%s: %s", c->name, a.why);
    check_all(m, c, &l, &a, true);
    count(&a);
    ptx_access_free(&a);
    zoo_release(c, &l);
}

static void check_file(const char *name) {
    char self[PATH_MAX] = "", path[PATH_MAX + 32], err[256];
    struct zoo_module m;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/%s", dirname(self), name);
    if (zoo_open(&m, path, err, sizeof err)) fail_msg("%s", err);
    problems = exact = slots = unknown = known_extents = dense = may_be = 0;
    for (int k = 0; k < zoo_case_count; k++) check_case(&m, &zoo_cases[k]);
    zoo_close(&m);
    print_message(
        "%s: %d launches: %d unknown; %d slots: %d with extent, %d of them to the byte, %d dense, %d that may be\n",
        name, zoo_case_count, unknown, slots, known_extents, exact, dense, may_be);
    assert_int_equal(problems, 0);
    assert_true(slots > 150 && unknown <= 4);
    assert_true(exact > slots * 3 / 4 &&
                dense > slots * 3 / 4); /* known to the byte, or the report has little to say */
}

static void optimised(void **state) {
    (void)state;
    check_file("zoo.ptx");
}

static void debugging(void **state) {
    (void)state;
    check_file("zoo_debug.ptx");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimised), cmocka_unit_test(debugging)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
