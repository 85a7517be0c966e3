/* A checksum: CRC-64/XZ (polynomial 0x42F0E1EBA9EA3693, reflected, all bits inverted before and after). It finds every
 * error that lies within 64 bits. */
#ifndef TRAIN_CRC64_H
#define TRAIN_CRC64_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is the checksum of, followed by `bytes` bytes of `data`; 0: of nothing. One thread. */
uint64_t crc64(uint64_t crc, const void *data, size_t bytes);

#endif
