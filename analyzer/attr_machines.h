/* What decides number formats beside a call's types: the device, and an environment variable of the process. */
#ifndef ACCT_ANALYZER_ATTR_MACHINES_H
#define ACCT_ANALYZER_ATTR_MACHINES_H

#include <sqlite3.h>
#include "analyzer/attr_pool.h"
#include "analyzer/cost_model.h"

struct machines {
    struct pool *pool;
    sqlite3_stmt *st;
    struct machine {
        int32_t process, device;
        struct cost_machine machine;
    } * known;
    int32_t count, room, last;
};

/* 0, or negative with one line in err. */
int machines_open(struct machines *m, struct pool *pool, sqlite3 *db, char *err, size_t err_len);
/* Number of the machine that a process' device is, from 0; each pair has its own. */
int32_t machine_of(struct machines *m, int32_t process, int32_t device);
const struct cost_machine *machine_at(const struct machines *m, int32_t number);
void machines_close(struct machines *m);

#endif
