/* Models of the napkin: what the text says, and parameters, which are known from the models' own papers and code. */
#include "plan/plan_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void test_known_models(void **state) {
    static const struct {
        const char *text;
        int64_t all, position, multiplies;
    } known[] = {
        /* GPT-2, small to xl, as their checkpoints have them */
        {"layers=12,dim=768,heads=12,seq=1024,vocab=50257", 124439808, 786432, 123532032},
        {"layers=24,dim=1024,heads=16,seq=1024,vocab=50257", 354823168, 1048576, -1},
        {"layers=36,dim=1280,heads=20,seq=1024,vocab=50257", 774030080, 1310720, -1},
        {"layers=48,dim=1600,heads=25,seq=1024,vocab=50257", 1557611200, 1638400, -1},
        /* llm.c pads the vocabulary */
        {"layers=12,dim=768,heads=12,seq=1024,vocab=50304", 124475904, 786432, -1},
        /* Llama 7B and Llama 2 70B, as their checkpoints have them */
        {"layers=32,dim=4096,heads=32,seq=2048,vocab=32000,ff=11008,gated=yes,norm=rms,bias=no,tied=no,position=rotary",
         6738415616, 0, 6738415616 - 65 * 4096 - 32000 * 4096},
        {"layers=80,dim=8192,heads=64,kv_heads=8,seq=4096,vocab=32000,ff=28672,gated=yes,norm=rms,bias=no,tied=no,"
         "position=rotary",
         68976648192, 0, -1},
        /* the lecture's: layers · D · D */
        {"kind=linear,layers=3,dim=512,batch=64", 3 * 512 * 512, 0, 3 * 512 * 512},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct plan_model m;
        struct plan_parameters p;
        char err[256] = "";
        assert_int_equal(plan_model_read(known[i].text, &m, err, sizeof err), 0);
        assert_string_equal(err, "");
        assert_int_equal(plan_model_parameters(&m, &p, err, sizeof err), 0);
        assert_int_equal(p.all, known[i].all);
        assert_int_equal(p.of[PLAN_BY_POSITION], known[i].position);
        if (known[i].multiplies >= 0) assert_int_equal(p.of[PLAN_MULTIPLIES], known[i].multiplies);
        int64_t sum = 0;
        for (int u = 0; u < PLAN_WEIGHT_USES; u++) sum += p.of[u];
        assert_int_equal(sum, p.all);
    }
}

static void test_left_out(void **state) {
    struct plan_model m;
    char err[256];
    (void)state;
    assert_int_equal(plan_model_read("layers=2,dim=96,heads=6,seq=64,vocab=256", &m, err, sizeof err), 0);
    assert_int_equal(m.head, 16);
    assert_int_equal(m.kv_heads, 6);
    assert_int_equal(m.ff, 384);
    assert_int_equal(m.batch, 0);
    assert_true(m.tied && m.bias && !m.gated && !m.rms && m.position == PLAN_LEARNED && m.kind == PLAN_GPT);
    assert_int_equal(plan_model_read("layers=2,dim=100,heads=6,head=16,seq=64,vocab=1k,batch=4", &m, err, sizeof err),
                     0);
    assert_int_equal(m.head, 16);
    assert_int_equal(m.vocab, 1000);
    assert_int_equal(m.batch, 4);
}

static void test_bad(void **state) {
    static const char *const bad[][2] = {
        {"", "layers="},
        {"layers=12,dim=768,heads=12,seq=1024", "vocab="},
        {"layers=12,dim=768,seq=1024,vocab=5", "heads="},
        {"layers=12,layers=13", "layers="},
        {"layers=0", "layers='0'"},
        {"dim=-1", "dim='-1'"},
        {"dim=1e13", "dim='1e13'"},
        {"depth=3", "'depth'"},
        {"layers", "'layers'"},
        {"layers=", "'layers='"},
        {"tied=maybe", "tied=maybe: is none of no, yes"},
        {"position=alibi", "position=alibi"},
        {"layers=2,dim=100,heads=6,seq=64,vocab=256", "heads="},
        {"layers=2,dim=96,heads=6,kv_heads=4,seq=64,vocab=256", "kv_heads="},
        {"layers=2,dim=96,heads=1e9,head=1e9,seq=64,vocab=256", "head="},
        {"kind=linear,layers=2,dim=96,heads=4", "heads="},
        {"kind=linear,layers=2,dim=96,tied=yes", "tied="},
        {"kind=linear,layers=2", "dim="},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plan_model m;
        char err[256] = "";
        if (plan_model_read(bad[i][0], &m, err, sizeof err) != -1) fail_msg("%s is taken", bad[i][0]);
        if (!strstr(err, bad[i][1])) fail_msg("%s: the line is: %s", bad[i][0], err);
        assert_null(strchr(err, '\n'));
    }
}

static void test_beyond_int64(void **state) {
    struct plan_model m;
    struct plan_parameters p;
    char err[256];
    (void)state;
    assert_int_equal(plan_model_read("layers=1e12,dim=1e12,heads=1,seq=1,vocab=1", &m, err, sizeof err), 0);
    assert_int_equal(plan_model_parameters(&m, &p, err, sizeof err), -1);
    assert_non_null(strstr(err, "9.2e18"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_models),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_beyond_int64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
