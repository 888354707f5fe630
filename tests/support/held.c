/* held.c: tells what a run holds. Linked with the whole program (held), and told by its environment:
 *
 *   HELD=FILE         gets a line at the end of every epoch: its number, the bytes that are allocated on the
 *                     host, those on the device, and the KiB of anonymous memory of the process
 *   HELD_OTHER=FILE   changes places with the configuration then, which is asked to be read again (SIGHUP)
 *
 * Only jemalloc says exactly how many bytes there are on the host: with another malloc there is no file. What
 * its threads keep for their next calls counts too, but for MALLOC_CONF=tcache:false. */
#include "config.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/report.h"

#ifdef HAVE_JEMALLOC
#include <jemalloc/jemalloc.h>

static size_t host_bytes(void)
{
    uint64_t now = 1;
    size_t bytes = 0, size = sizeof bytes;
    mallctl("epoch", NULL, NULL, &now, sizeof now);      /* of which the statistics then are */
    mallctl("stats.allocated", &bytes, &size, NULL, 0);
    return bytes;
}
#else
static size_t host_bytes(void)
{
    return 0;
}
#endif

/* Resident anonymous memory in KiB: RssAnon in proc_pid_status(5); 0 if it cannot be read. */
static long anonymous_kib(void)
{
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return 0;
    while (kib == 0 && fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %ld", &kib);
    fclose(file);
    return kib;
}

/* Not while a checkpoint is being written, from a copy of the state. */
static void tell(struct run *run, const char *name)
{
    run_save_end(run);
    struct cache *cache = run->session->cache;
    size_t device = cache ? cache_statistics(cache).allocated : (size_t)run->programs.bytes.total;
    size_t host = host_bytes();      /* before the files take some */
    long anonymous = anonymous_kib();
    FILE *file = host > 0 ? fopen(name, "a") : NULL;
    if (!file) return;
    fprintf(file, "%lld %zu %zu %ld\n", (long long)run->position.epoch + 1, host, device, anonymous);
    fclose(file);
}

static void swap_files(const char *one, const char *two)
{
    if (rename(one, "swapped") != 0 || rename(two, one) != 0 || rename("swapped", two) != 0) {
        perror("held: HELD_OTHER");
        exit(99);
    }
}

enum status __real_report_epoch(struct run *run, const struct evaluation *evaluation);
enum status __wrap_report_epoch(struct run *run, const struct evaluation *evaluation);

enum status __wrap_report_epoch(struct run *run, const struct evaluation *evaluation)
{
    enum status status = __real_report_epoch(run, evaluation);
    const char *name = getenv("HELD"), *other = getenv("HELD_OTHER");
    if (name) tell(run, name);
    if (other) {
        swap_files(run->options->config, other);
        raise(SIGHUP);
    }
    return status;
}
