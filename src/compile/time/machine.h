/* machine.h: the rates of a device and of its links, by which the compiler chooses and forecasts. */
#pragma once

#include <stdbool.h>

/* A way of moving bytes: its latency and its rate. */
struct link {
    double seconds, bytes_per_second;
};

struct machine {
    const char *name;            /* with which the device's description begins */
    int threads;                 /* of a processor, on which the rates below are those of all threads; 0: a
                                  * GPU */
    double launch;               /* seconds of an empty kernel in a captured graph */
    double bytes_per_second;     /* of a pass over tensors that the cache does not hold, read and written */
    double flops_16, flops_32;   /* per second, of large products of 16-bit and of fp32 tensors */
    double cache_bytes;          /* that the next kernel still finds in the cache */
    struct link host;            /* copies to the host and back */
    struct link sum;             /* an all-reduce on one host: bytes sent and received by a rank */
    struct link copy;            /* copies to another GPU of the host while nothing else runs */
    struct link message;         /* ... and during computation */
    double network_seconds;      /* latency of a message between hosts */
    double exchange_share;       /* fraction of the device's speed that a running exchange takes */
};

/* The GPU whose description is given; NULL, or one that is not in the table: an H200. `tf32`: products of
 * fp32 tensors round their inputs. */
struct machine machine_gpu(const char *description, bool tf32);

/* A processor of so many threads. */
struct machine machine_cpu(int threads);

/* Seconds to move that many bytes. */
static inline double link_seconds(const struct link *link, double bytes)
{
    return link->seconds + bytes / link->bytes_per_second;
}
