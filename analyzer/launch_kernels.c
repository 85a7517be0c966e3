#include "analyzer/launch_kernels.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/launch_sets.h"
#include "ptx/ptx_cost.h"
#include "ptx/ptx_fatbin.h"
#include "ptx/ptx_link.h"

/* Of libstdc++, whose header is C++. */
extern char *__cxa_demangle(const char *mangled, char *output, size_t *length, int *status);

char *launch_demangle(const char *name) {
    int status = 0;
    return name && name[0] == '_' && name[1] == 'Z' ? __cxa_demangle(name, NULL, NULL, &status) : NULL;
}

size_t launch_name_length(const char *name) {
    static const char hidden[] = "(anonymous namespace)", call[] = "operator()";
    int depth = 0;
    size_t n = 0;
    while (name[n]) {
        if (!strncmp(name + n, hidden, sizeof hidden - 1)) {
            n += sizeof hidden - 1;
        } else if (!strncmp(name + n, call, sizeof call - 1)) {
            n += sizeof call - 1;
        } else {
            if (name[n] == '(' && !depth && n) break;
            depth += (name[n] == '<' || name[n] == '{') - ((name[n] == '>' || name[n] == '}') && depth);
            n++;
        }
    }
    return n;
}

/* ---- a signature without PTX ---- */

static char letter_of(const char *type, size_t n) {
    if (n && type[n - 1] == '*') return n >= 6 && !memcmp(type + n - 6, "const*", 6) ? 'c' : 'p';
    if (n && type[n - 1] == '&') return 'p';
    static const char *const plain[] = {"int",
                                        "unsigned int",
                                        "long",
                                        "unsigned long",
                                        "float",
                                        "double",
                                        "bool",
                                        "char",
                                        "unsigned char",
                                        "short",
                                        "unsigned short",
                                        "long long",
                                        "unsigned long long",
                                        "signed char"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strlen(plain[i]) == n && !memcmp(plain[i], type, n)) return '-';
    return '?'; /* a struct may hold pointers */
}

char *launch_signature(const char *demangled, int count) {
    char *letters = malloc((size_t)count + 1);
    if (!letters) return NULL;
    memset(letters, '?', (size_t)count);
    letters[count] = 0;
    const char *p = demangled ? demangled + launch_name_length(demangled) : NULL;
    if (p) p = *p ? p + 1 : NULL;
    for (int i = 0; p && i < count; i++) {
        int depth = 0;
        const char *from = p;
        for (; *p && (depth || (*p != ',' && *p != ')')); p++)
            depth += (*p == '<' || *p == '(') - (*p == '>' || *p == ')');
        letters[i] = letter_of(from, (size_t)(p - from));
        if (*p != ',') break;
        p += p[1] == ' ' ? 2 : 1;
    }
    return letters;
}

/* ---- modules ---- */

/* The text of a module, malloc'ed; NULL: there is none, or it cannot be read. */
static char *payload_text(sqlite3_stmt *st, size_t *bytes) {
    struct acct_fatbin_entry entry = {.kind = ACCT_FATBIN_PTX,
                                      .flags = (uint64_t)sqlite3_column_int64(st, 0),
                                      .uncompressed_bytes = (uint64_t)sqlite3_column_int64(st, 1),
                                      .payload = sqlite3_column_blob(st, 2),
                                      .payload_bytes = (uint64_t)sqlite3_column_bytes(st, 2)};
    char *text = NULL, why[256];
    if (!entry.payload || ptx_fatbin_text(&entry, &text, bytes, why, sizeof why)) return NULL;
    return text;
}

static char *read_text(sqlite3 *db, int64_t hash, size_t *bytes) {
    sqlite3_stmt *st;
    char *text = NULL;
    if (sqlite3_prepare_v2(db, "SELECT flags, uncompressed_bytes, payload FROM ptx WHERE hash = ?", -1, &st, NULL))
        return NULL;
    sqlite3_bind_int64(st, 1, hash);
    if (sqlite3_step(st) == SQLITE_ROW) text = payload_text(st, bytes);
    sqlite3_finalize(st);
    return text;
}

static struct ptx_module *parse_text(char *text, size_t bytes) {
    struct ptx_module *module = NULL;
    struct ptx_error error;
    if (text && ptx_parse(text, bytes, &module, &error)) module = NULL;
    free(text);
    return module;
}

/* Units that were compiled apart, as one: a kernel's calls lead from one into another. NULL: they cannot be linked. */
static struct ptx_module *link_units(sqlite3 *db, const int64_t *hash, size_t count) {
    char **text = calloc(count, sizeof *text), *linked = NULL, why[256];
    size_t *bytes = calloc(count, sizeof *bytes), linked_bytes = 0;
    int complete = text && bytes;
    for (size_t i = 0; complete && i < count; i++) complete = (text[i] = read_text(db, hash[i], &bytes[i])) != NULL;
    if (complete && ptx_link((const char *const *)text, bytes, count, &linked, &linked_bytes, why, sizeof why))
        linked = NULL;
    for (size_t i = 0; text && i < count; i++) free(text[i]);
    free(text);
    free(bytes);
    return parse_text(linked, linked_bytes);
}

/* count = 1: a module; more: units linked together. */
static const struct ptx_module *module_of(struct launch_kernels *k, const int64_t *hash, size_t count, int *failed) {
    uint64_t key = (uint64_t)hash[0];
    for (size_t i = 1; i < count; i++) key = (key ^ (uint64_t)hash[i]) * 1099511628211u + i;
    for (int i = 0; i < k->modules; i++)
        if (k->module[i].key == key && k->module[i].units == count) return k->module[i].ptx;
    if (k->modules == k->module_room) {
        int room = k->module_room ? 2 * k->module_room : 16;
        struct launch_module *more = realloc(k->module, (size_t)room * sizeof *more);
        if (!more) return *failed = 1, NULL;
        k->module = more;
        k->module_room = room;
    }
    struct ptx_module *ptx = NULL;
    size_t bytes = 0;
    if (count > 1) {
        ptx = link_units(k->db, hash, count);
    } else {
        char *text = read_text(k->db, hash[0], &bytes);
        ptx = parse_text(text, bytes);
    }
    k->module[k->modules] = (struct launch_module){key, count, ptx};
    return k->module[k->modules++].ptx;
}

/* ---- kernels ---- */

/* The hashes of a kernel's translation units that have PTX, malloc'ed. */
static int64_t *units_of(struct launch_kernels *k, int64_t module, int64_t modules, size_t *count, int *failed) {
    sqlite3_stmt *st;
    int64_t *hash = NULL;
    *count = 0;
    if (sqlite3_prepare_v2(
            k->db, "SELECT hash FROM module WHERE id >= ?1 AND id < ?1 + max(?2, 1) AND hash IS NOT NULL ORDER BY id",
            -1, &st, NULL))
        return NULL;
    sqlite3_bind_int64(st, 1, module);
    sqlite3_bind_int64(st, 2, modules);
    while (sqlite3_step(st) == SQLITE_ROW) {
        int64_t *more = realloc(hash, (*count + 1) * sizeof *hash);
        if (!more) {
            *failed = 1;
            break;
        }
        hash = more;
        hash[(*count)++] = sqlite3_column_int64(st, 0);
    }
    sqlite3_finalize(st);
    return hash;
}

static int find_in(struct launch_kernels *k, struct launch_kernel *out, const int64_t *hash, size_t count,
                   int *failed) {
    out->module = module_of(k, hash, count, failed);
    const struct ptx_function *f = out->module && out->name ? ptx_function_find(out->module, out->name) : NULL;
    if (f && f->entry && !f->declared_only && !f->error) out->entry = f;
    return out->entry != NULL;
}

/* In the units linked together; where that fails, in the one that has the kernel. */
static void find_entry(struct launch_kernels *k, struct launch_kernel *out, int64_t module, int64_t modules,
                       int *failed) {
    size_t count;
    int64_t *hash = units_of(k, module, modules, &count, failed);
    if (count < 2 || !find_in(k, out, hash, count, failed))
        for (size_t i = 0; i < count && !*failed; i++)
            if (find_in(k, out, hash + i, 1, failed)) break;
    free(hash);
}

static void read_params(struct launch_kernels *k, struct launch_kernel *out, const char *json) {
    sqlite3_stmt *st;
    out->param_count = -1;
    if (!json || sqlite3_prepare_v2(k->db,
                                    "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM "
                                    "json_each(CASE WHEN json_valid(?1) THEN ?1 ELSE '[]' END) LIMIT 4096",
                                    -1, &st, NULL))
        return;
    sqlite3_bind_text(st, 1, json, -1, SQLITE_TRANSIENT);
    int n = 0;
    for (; sqlite3_step(st) == SQLITE_ROW; n++) {
        struct launch_param *more = realloc(out->params, (size_t)(n + 1) * sizeof *more);
        if (!more) break;
        out->params = more;
        more[n] = (struct launch_param){(uint32_t)sqlite3_column_int64(st, 0), (uint32_t)sqlite3_column_int64(st, 1)};
    }
    sqlite3_finalize(st);
    out->param_count = n;
}

/* The PTX says it itself, should the recorder not have known. */
static void params_from_entry(struct launch_kernel *k) {
    if (k->param_count >= 0 || !k->entry) return;
    k->params = calloc((size_t)k->entry->params + 1, sizeof *k->params);
    if (!k->params) return;
    k->param_count = k->entry->params;
    for (int i = 0; i < k->param_count; i++)
        k->params[i] = (struct launch_param){(uint32_t)k->entry->vars[i].offset, (uint32_t)k->entry->vars[i].bytes};
}

static void analyse_entry(struct launch_kernel *k) {
    if (k->entry && ptx_access_static(k->module, k->entry, &k->fixed)) {
        ptx_access_free(&k->fixed);
        memset(&k->fixed, 0, sizeof k->fixed);
        k->entry = NULL;
    }
    if (k->entry) return;
    char *demangled = launch_demangle(k->name);
    if (k->param_count > 0) k->is_const = launch_signature(demangled, k->param_count);
    free(demangled);
}

static void find_uses(struct launch_kernel *k) {
    k->function = k->entry ? k->entry : k->module && k->name ? ptx_function_find(k->module, k->name) : NULL;
    if (!k->entry) return;
    k->cost_uses = malloc((size_t)k->entry->param_bytes + 1);
    if (!k->cost_uses || !ptx_cost_uses(k->module, k->entry, k->cost_uses)) return;
    free(k->cost_uses);
    k->cost_uses = NULL;
}

/* After find_uses and analyse_entry. Where an access cannot be followed, each word may be a pointer. */
static void find_matters(struct launch_kernel *k) {
    if (!k->entry || !k->cost_uses || k->fixed.unknown || !(k->matters = malloc((size_t)k->entry->param_bytes + 1)))
        return;
    ptx_access_uses(k->module, k->entry, k->matters);
    for (uint32_t i = 0; i < k->entry->param_bytes; i++)
        k->matters[i] = k->matters[i] || k->cost_uses[i] != PTX_COST_BY_NOTHING ? 0xff : 0;
}

static struct launch_kernel *read_kernel(struct launch_kernels *k, int64_t id, int *failed) {
    sqlite3_stmt *st;
    struct launch_kernel *out = NULL;
    if (sqlite3_prepare_v2(k->db, "SELECT name, module, modules, params FROM kernel WHERE id = ?", -1, &st, NULL))
        return NULL;
    sqlite3_bind_int64(st, 1, id);
    if (sqlite3_step(st) == SQLITE_ROW && !(out = calloc(1, sizeof *out))) *failed = 1;
    if (out) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        out->id = id;
        out->name = name ? strdup(name) : NULL;
        read_params(k, out, (const char *)sqlite3_column_text(st, 3));
        if (sqlite3_column_type(st, 1) != SQLITE_NULL)
            find_entry(k, out, sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 2), failed);
        params_from_entry(out);
        find_uses(out);
        analyse_entry(out);
        find_matters(out);
    }
    sqlite3_finalize(st);
    return out;
}

const struct launch_kernel *launch_kernels_get(struct launch_kernels *k, int64_t id, int *failed) {
    struct launch_kernel **recent = &k->recent[(uint64_t)id % (sizeof k->recent / sizeof *k->recent)];
    if (*recent && (*recent)->id == id) return *recent;
    for (int i = 0; i < k->kernels; i++)
        if (k->kernel[i]->id == id) return *recent = k->kernel[i];
    if (k->kernels == k->kernel_room) {
        int room = k->kernel_room ? 2 * k->kernel_room : 64;
        struct launch_kernel **more = realloc(k->kernel, (size_t)room * sizeof *more);
        if (!more) return *failed = 1, NULL;
        k->kernel = more;
        k->kernel_room = room;
    }
    struct launch_kernel *found = read_kernel(k, id, failed);
    if (found) k->kernel[k->kernels++] = found;
    return found;
}

void launch_kernels_free(struct launch_kernels *k) {
    for (int i = 0; i < k->kernels; i++) {
        struct launch_kernel *x = k->kernel[i];
        ptx_access_free(&x->fixed);
        free(x->name), free(x->params), free(x->is_const), free(x->cost_uses), free(x->matters), free(x);
    }
    for (int i = 0; i < k->modules; i++) ptx_free(k->module[i].ptx);
    free(k->kernel);
    free(k->module);
}
