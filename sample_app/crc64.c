#include "sample_app/crc64.h"

#define REFLECTED 0xC96C5795D7870F42u

/* [k][b]: what byte b does to the checksum when k more bytes follow it. */
static uint64_t table[8][256];

static void fill_table(void) {
    for (int b = 0; b < 256; b++) {
        uint64_t crc = (uint64_t)b;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ REFLECTED : crc >> 1;
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

/* Eight bytes at a time, as a checkpoint has gigabytes. */
uint64_t crc64(uint64_t crc, const void *data, size_t bytes) {
    const unsigned char *at = data, *end = at + bytes;
    if (!table[0][1]) fill_table();
    crc = ~crc;
    for (; end - at >= 8; at += 8) {
        uint64_t next = 0;
        for (int k = 0; k < 8; k++) next ^= table[7 - k][(at[k] ^ crc >> 8 * k) & 255];
        crc = next;
    }
    for (; at < end; at++) crc = crc >> 8 ^ table[0][(*at ^ crc) & 255];
    return ~crc;
}
