/* The main function of fuzz targets that are built without libFuzzer: it tries files, or the files in
 * folders, one after the other, and with -m also that many variants of them: bits flipped, bytes
 * changed, cut off, parts of two put together. What is wrong ends the program by a signal; the input is
 * then in ./crash. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "fuzz.h"

#define INPUT_MAX ((size_t)1 << 26)

struct input {
    char *path;
    uint8_t *bytes;
    size_t count;
};

static struct {
    struct input *inputs;
    int count;
    struct input now;          /* being tried */
    double slowest;            /* seconds that an input took */
    char *slowest_path;
} replay;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whatever ends the program: what it was busy with is kept. */
static void keep_crash(void)
{
    if (!replay.now.bytes) return;
    FILE *file = fopen("crash", "wb");
    if (file) {
        fwrite(replay.now.bytes, 1, replay.now.count, file);
        fclose(file);
    }
    dprintf(STDERR_FILENO, "died of %s (the bytes are in ./crash)\n", replay.now.path);
}

#ifdef __SANITIZE_ADDRESS__
/* A sanitizer ends the program without a signal, and without what atexit was told. */
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

static void on_signal(int number)
{
    keep_crash();
    signal(number, SIG_DFL);
    raise(number);
}

static void try_bytes(char *path, const uint8_t *bytes, size_t count)
{
    /* Memory of just this size, so that a read beyond it is seen. */
    uint8_t *copy = memory_new(count, 1);
    memcpy(copy, bytes, count);
    replay.now = (struct input){path, copy, count};
    double start = seconds_now();
    LLVMFuzzerTestOneInput(copy, count);
    double took = seconds_now() - start;
    if (took > replay.slowest) {
        replay.slowest = took;
        replay.slowest_path = path;
    }
    replay.now.bytes = NULL;
    free(copy);
}

static void add_file(const char *path, const struct stat *is)
{
    struct input input = {.path = text_copy(path), .count = (size_t)is->st_size};
    if (input.count > INPUT_MAX) return;
    input.bytes = memory_new(input.count, 1);
    FILE *file = fopen(path, "rb");
    if (!file || fread(input.bytes, 1, input.count, file) != input.count) {
        dprintf(STDERR_FILENO, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    *array_push(replay.inputs, replay.count) = input;
}

static void add_path(const char *path)
{
    struct stat is;
    struct dirent **entries;
    if (stat(path, &is) != 0 || (!S_ISDIR(is.st_mode) && !S_ISREG(is.st_mode))) return;
    if (S_ISREG(is.st_mode)) {
        add_file(path, &is);
        return;
    }
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *child = text_format("%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') add_path(child);
        free(child);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
}

/* A few changes of one kind or the other. Returns the new length; there is room for it. */
static size_t change(uint8_t *bytes, size_t count, size_t room, struct random *random)
{
    for (uint32_t left = 1 + random_below(random, 8); left > 0 && count > 0; left--) {
        size_t at = random_below(random, (uint32_t)count);
        switch (random_below(random, 6)) {
        case 0: bytes[at] ^= (uint8_t)(1 << random_below(random, 8)); break;
        case 1: bytes[at] = (uint8_t)random_next(random); break;
        case 2: bytes[at] = random_below(random, 2) ? 0xff : 0; break;
        case 3: {                                      /* a stretch moves */
            size_t from = random_below(random, (uint32_t)count), most = count - (at > from ? at : from);
            memmove(bytes + at, bytes + from, random_below(random, (uint32_t)(most < 64 ? most : 64) + 1));
            break;
        }
        case 4: {                                      /* the end comes from another file */
            const struct input *other = &replay.inputs[random_below(random, (uint32_t)replay.count)];
            if (other->count == 0) break;
            size_t from = random_below(random, (uint32_t)other->count), more = other->count - from;
            if (more > room - at) more = room - at;
            memcpy(bytes + at, other->bytes + from, more);
            count = at + more;
            break;
        }
        case 5:
            if (random_below(random, 4) == 0) count = at;      /* cut off */
            break;
        }
    }
    return count;
}

static void try_variants(long variants, uint64_t seed)
{
    size_t room = 1;
    for (int i = 0; i < replay.count; i++)
        if (replay.inputs[i].count > room) room = replay.inputs[i].count;
    uint8_t *bytes = memory_new(room, 1);
    for (long i = 0; i < variants && replay.count > 0; i++) {
        struct random random = random_open(seed, PURPOSE_TEST, 1, (uint64_t)i);
        const struct input *input = &replay.inputs[random_below(&random, (uint32_t)replay.count)];
        memcpy(bytes, input->bytes, input->count);
        size_t count = change(bytes, input->count, room, &random);
        try_bytes(input->path, bytes, count);
    }
    free(bytes);
}

int main(int argc, char **argv)
{
    long variants = 0, seed = 1;
    for (int option; (option = getopt(argc, argv, "m:s:")) != -1;) {
        if (option == 'm') variants = atol(optarg);
        else if (option == 's') seed = atol(optarg);
        else return 2;
    }
    LLVMFuzzerInitialize(&argc, &argv);
    atexit(keep_crash);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(keep_crash);
#endif
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    signal(SIGFPE, on_signal);
    for (int i = optind; i < argc; i++) add_path(argv[i]);
    for (int i = 0; i < replay.count; i++)
        try_bytes(replay.inputs[i].path, replay.inputs[i].bytes, replay.inputs[i].count);
    try_variants(variants, (uint64_t)seed);
    struct rusage usage;
    const char *slowest = replay.slowest_path ? strrchr(replay.slowest_path, '/') : NULL;
    getrusage(RUSAGE_SELF, &usage);
    printf("%d inputs, %ld variants; the slowest took %.2f s (%s); %ld MiB of memory\n", replay.count,
           variants, replay.slowest, slowest ? slowest + 1 : "none", usage.ru_maxrss / 1024);
    for (int i = 0; i < replay.count; i++) {
        free(replay.inputs[i].path);
        free(replay.inputs[i].bytes);
    }
    free(replay.inputs);
    return replay.count == 0;
}
