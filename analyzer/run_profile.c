#include "analyzer/run_profile.h"

#include "acct/env.h"
#include "acct/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file by its whole path; a name as it is. */
static void name_setting(const char *given, const struct acct_profile *p, char setting[RUN_PATH + 64]) {
    const char *colon = strrchr(given, ':');
    size_t n = colon ? (size_t)(colon - given) : strlen(given);
    char path[RUN_PATH], *real = NULL;
    snprintf(path, sizeof path, "%.*s", (int)n, given);
    if (p->file) real = realpath(path, NULL);
    snprintf(setting, RUN_PATH + 64, "ACCT_VGPU=%s%s", real ? real : path, colon ? colon : "");
    free(real);
}

int run_check_profile(const char *given, char setting[RUN_PATH + 64], char *err, size_t err_len) {
    const char *text = given ? given : acct_env_text(ENV_ACCT_VGPU), *who = given ? "--vgpu=" : "ACCT_VGPU=";
    struct acct_profile profile;
    char why[RUN_PATH + 512];
    *setting = 0;
    if (acct_profile_read(text, &profile, why, sizeof why)) {
        snprintf(err, err_len, "%s%s", who, why);
        return -1;
    }
    if (given || profile.file) name_setting(text, &profile, setting);
    return 0;
}
