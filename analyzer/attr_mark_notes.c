/* What the analysis says of markers. */
#include "analyzer/attr_marks.h"

static void name_sources(const struct marks *m, int steps, sqlite3_str *out) {
    uint8_t *said = POOL_NEW(m->t->pool, uint8_t, m->set.texts ? m->set.texts : 1);
    int n = 0;
    for (int32_t i = 0; i < m->set.marks; i++) {
        const struct mark *k = &m->set.mark[i];
        if ((k->named == NAMED_STEP) != steps || said[k->text]) continue;
        said[k->text] = 1;
        if (++n <= 4) sqlite3_str_appendf(out, "%s'%s'", n > 1 ? ", " : "", m->set.text[k->text]);
    }
    if (n > 4) sqlite3_str_appendf(out, ", and %d more", n - 4);
    pool_give(m->t->pool, said);
}

static const char *source_name(const struct marks *m) {
    int nvtx = 0, acct_h = 0;
    for (int32_t i = 0; i < m->set.marks; i++) *(m->set.mark[i].by == AT_BY_NVTX ? &nvtx : &acct_h) = 1;
    return nvtx && acct_h ? "NVTX and acct.h" : nvtx ? "NVTX" : "acct.h";
}

void marks_say(struct marks *m, int phases_only) {
    sqlite3_str *o = m->notes;
    int32_t of_marks = 0, marked_phases = 0;
    for (int32_t i = 0; i < m->t->steps; i++) of_marks += m->t->step[i].by >= AT_BY_NVTX;
    for (int32_t e = 0; e < m->t->events; e++) marked_phases |= m->t->event[e].phase_by;
    if (of_marks) {
        sqlite3_str_appendf(o, "%d step(s) are those of %s ranges ", of_marks, source_name(m));
        name_sources(m, !phases_only, o);
        sqlite3_str_appendf(o,
                            phases_only              ? ", from the first forward or backward to the optimizer"
                            : of_marks < m->t->steps ? ", the other %d the rules'"
                                                     : "",
                            m->t->steps - of_marks);
        if (m->rules_steps && of_marks == m->t->steps && m->rules_steps != of_marks)
            sqlite3_str_appendf(o, "; by the rules there would be %d", m->rules_steps);
        sqlite3_str_appendall(o, ".\n");
    }
    if (marked_phases) {
        sqlite3_str_appendf(o, "Phases where %s ranges name them (", source_name(m));
        name_sources(m, 0, o);
        sqlite3_str_appendall(o, ") are theirs");
        if (m->relabelled) sqlite3_str_appendf(o, "; the rules see %lld op(s) otherwise", (long long)m->relabelled);
        sqlite3_str_appendall(o, ".\n");
    }
    if (m->set.step_is_optimizer)
        sqlite3_str_appendall(
            o, "The ranges 'step' are taken for the optimizer's: no forward or backward lies in them.\n");
    if (m->outside)
        sqlite3_str_appendf(
            o, "%lld op(s) that the rules find in a step lie outside of the marked ones: they are in none.\n",
            (long long)m->outside);
    if (m->set.never_ended)
        sqlite3_str_appendf(o, "%d marked step(s) or phase(s) never ended: they are taken to last until the next.\n",
                            m->set.never_ended);
    if (m->set.overlapping)
        sqlite3_str_appendf(o,
                            "%d marked step(s) begin before the one before has ended: they are taken to begin there.\n",
                            m->set.overlapping);
    if (m->set.of_other_threads)
        sqlite3_str_appendf(
            o,
            "%d marked step(s) overlap those of the thread with most ops in its steps: they, and the ops "
            "of their threads, are in none.\n",
            m->set.of_other_threads);
}
