/* hash.h: a hash of bytes, for tables and comparisons; not against forgery. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t count);
