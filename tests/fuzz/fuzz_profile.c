/* Fuzzer of profiles: the first line is what ACCT_VGPU says, the rest a profile file. */
#include "acct/profile.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_profile: %s\n", what);
    abort();
}

static void read_name(const char *text) {
    struct acct_profile p;
    char err[600] = "";
    if (strchr(text, '/') || strstr(text, ".profile")) return; /* would open a file */
    int rc = acct_profile_read(text, &p, err, sizeof err);
    must(rc == 0 ? p.devices >= 1 && p.devices <= ACCT_PROFILE_DEVICES && (p.cpu || p.device.total_bytes) : err[0] != 0,
         "name");
}

static void read_file(char *text, size_t size) {
    struct acct_device d;
    char err[600] = "";
    FILE *in = fmemopen(text, size, "r");
    if (!in) return;
    int rc = acct_profile_lines(in, "a/fuzzed.profile", &d, err, sizeof err);
    fclose(in);
    must(rc == 0 || err[0], "a refusal without a reason");
    if (rc) return;
    must(acct_sm_find(d.sm) && d.total_bytes > d.reserved_bytes && d.sms >= 1 && d.name[0] && d.source[0], "whole");
    must(!strcmp(d.alias, "fuzzed"), "alias");
    for (int f = 0; f < ACCT_FORMATS; f++) must(isnan(d.peak[f]) || (d.peak[f] >= 0 && d.peak[f] < 1e34), "peak");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1); /* its own block, so that overruns are seen */
    memcpy(text, data, size);
    text[size] = 0;
    char *end = strchr(text, '\n');
    if (end) {
        *end++ = 0;
        if (*end) read_file(end, size - (size_t)(end - text));
    }
    read_name(text);
    free(text);
    return 0;
}
