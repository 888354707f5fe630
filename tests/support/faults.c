/* faults.c: lets the k-th call of a kind fail. Linked with the whole program (faulty), and told by its
 * environment:
 *
 *   FAULT=KIND:K:HOW[:on]   the K-th call of KIND, and every later one too with `on`, does HOW:
 *                           ENOMEM, EIO, ...: it fails so and does nothing
 *                           short: it reads or writes half of what was asked for
 *                           stall: it takes five minutes
 *                           pause: before it the process stops itself (SIGSTOP)
 *                           kill: the process is killed before it
 *                           flip: after a batch, a bit of the first parameter turns over (on the CPU)
 *   FAULT_RANK=N            only in this rank of a run of several
 *   FAULT_FILE=TEXT         of the system calls, only those on an open file whose path has this in it count
 *   FAULT_ROOM=BYTES[@K]    the device has no more memory than this (from the K-th call for it on, when
 *                           another process has taken the rest)
 *   FAULT_COUNTS=FILE       at the end, how many calls of each kind there were: one a line; and how many
 *                           bytes of the device's memory were not given back
 *   FAULT_FIRED=FILE        when the first call fails, whose it was, and where the process crashes, in whose
 *                           code: "fault" or "crash", "amptrain" or a library, and the place in it
 *   FAULT_TRACE=yes         and the stack, on standard error
 *
 * malloc and its relatives are defined here, so that libraries call these too; pthread_create is wrapped by
 * the linker, and so are device_open, which is given a table of functions that ask here first, store_open,
 * and exec_collect, which ends a batch. All other kinds are system calls: the kernel sends SIGSYS instead
 * of making them (seccomp), where the C library makes them. So what stdio, zlib or malloc itself ask the
 * kernel for fails too. What dynamic linker and sanitizers ask for by themselves does not, nor what
 * libraries do before main. On processors other than x86-64, whose registers are meant, and under
 * ThreadSanitizer, which keeps signals back, the program ends at once, with 77. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "exec/store.h"

#if defined __x86_64__ && !defined __SANITIZE_THREAD__
#define CALLS_CAN_BE_CAUGHT
#endif

enum value_kind {
    KIND_MEMORY, KIND_MAP, KIND_OPEN, KIND_READ, KIND_WRITE, KIND_SYNC, KIND_RENAME, KIND_REMOVE, KIND_LENGTH,
    KIND_STAT, KIND_FOLDER, KIND_CLOSE, KIND_SEEK, KIND_LOCK, KIND_THREAD, KIND_ROOM, KIND_COPY, KIND_BATCH,
    KIND_COUNT,
    KIND_NONE = KIND_COUNT
};

static const char *const kind_name[KIND_COUNT] = {
    [KIND_MEMORY] = "memory", [KIND_MAP] = "map", [KIND_OPEN] = "open", [KIND_READ] = "read",
    [KIND_WRITE] = "write", [KIND_SYNC] = "sync", [KIND_RENAME] = "rename", [KIND_REMOVE] = "remove",
    [KIND_LENGTH] = "length", [KIND_STAT] = "stat", [KIND_FOLDER] = "folder", [KIND_CLOSE] = "close",
    [KIND_SEEK] = "seek", [KIND_LOCK] = "lock", [KIND_THREAD] = "thread",
    [KIND_ROOM] = "device-memory", [KIND_COPY] = "device-copy", [KIND_BATCH] = "batch",
};

static struct {
    bool ready;
    enum value_kind kind;            /* KIND_NONE: none is to fail */
    long at;                   /* from 1 */
    int error;                 /* 0: what follows, or short */
    bool stall, pause, kill, flip, on;
    const char *file;          /* what is in the path of each file that is meant; NULL: all are */
    const char *counts;
    size_t room;               /* of the device; 0: as it is */
    long room_from;            /* the call from which on that holds */
    atomic_size_t held;        /* of it */
    long fired;                /* a descriptor that is not the program's */
    bool trace;
    atomic_long calls[KIND_COUNT];
    atomic_flag told;
} fault = {.kind = KIND_NONE};

/* Calls of our own, which are not caught: they are not the C library's. */
static long call_kernel(long number, long a, long b, long c, long d, long e, long f)
{
#ifdef __x86_64__
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, d, e, f);
#endif
}

static long create(const char *path)
{
    return call_kernel(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_CREAT | O_TRUNC, 0666, 0, 0);
}

static void put(long file, const char *text)
{
    call_kernel(SYS_write, file, (long)text, (long)strlen(text), 0, 0, 0);
}

/* Whose call it was */

struct module {
    uintptr_t address, base;
    char name[PATH_MAX];
};

static int match_module(struct dl_phdr_info *info, size_t size, void *context)
{
    struct module *module = context;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || module->address - from >= part->p_memsz) continue;
        const char *slash = strrchr(info->dlpi_name, '/');
        const char *name = info->dlpi_name[0] ? slash ? slash + 1 : info->dlpi_name : "amptrain";
        snprintf(module->name, sizeof module->name, "%s", name);
        module->base = info->dlpi_addr;
        return 1;
    }
    return 0;
}

/* True if a module only carries on what others ask for, or, where a process crashes, ends it for them. */
static bool is_carrier(const char *name, bool crash)
{
    static const char *const carriers[] = {"libc.so",    "libstdc++", "libgcc_s",
                                           "linux-vdso", "libasan",   "libjemalloc"};
    size_t count = sizeof carriers / sizeof *carriers - crash;
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, carriers[i], strlen(carriers[i])) == 0) return true;
    return false;
}

/* Lies in this file's own code. */
extern const char __start_faults_text[], __stop_faults_text[];
/* Also for libraries, whatever the compiler is told. */
#pragma GCC visibility push(default)

#define HERE __attribute__((section("faults_text"), noinline))

/* Adds a line to FAULT_FIRED: `what`, the module that the stack leads to, and the place in it. */
HERE static void tell(const char *what, bool crash)
{
    void *stack[64];
    int count = backtrace(stack, 64);
    struct module module = {.name = "?"};
    for (int i = 0; i < count; i++) {
        const char *at = stack[i];
        if (at >= __start_faults_text && at < __stop_faults_text) continue;
        module.address = (uintptr_t)at - 1;
        if (dl_iterate_phdr(match_module, &module) && !is_carrier(module.name, crash)) break;
    }
    if (fault.trace) backtrace_symbols_fd(stack, count, 2);
    char line[PATH_MAX + 64];
    unsigned long place = module.address - module.base;
    snprintf(line, sizeof line, "%s %s 0x%lx\n", what, module.name, place);
    put(fault.fired, line);
}

/* Counts a call, and says whether it is to fail. */
HERE static bool strikes(enum value_kind kind)
{
    if (!fault.ready) return false;
    long number = atomic_fetch_add(&fault.calls[kind], 1) + 1;
    if (kind != fault.kind || number < fault.at || (number > fault.at && !fault.on)) return false;
    if (!atomic_flag_test_and_set(&fault.told)) tell("fault", false);
    if (fault.kill) call_kernel(SYS_kill, call_kernel(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0, 0);
    return true;
}

/* malloc and its relatives */

#ifdef CALLS_CAN_BE_CAUGHT
static void *next_of(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        put(2, "faults: there is no ");
        put(2, name);
        _exit(99);
    }
    return found;
}

HERE static bool no_memory(void)
{
    if (!strikes(KIND_MEMORY)) return false;
    errno = ENOMEM;
    return true;
}

HERE void *malloc(size_t bytes)
{
    static void *(*next)(size_t);
    if (!next) next = (void *(*)(size_t))next_of("malloc");
    return no_memory() ? NULL : next(bytes);
}

HERE void *calloc(size_t count, size_t bytes)
{
    static void *(*next)(size_t, size_t);
    if (!next) next = (void *(*)(size_t, size_t))next_of("calloc");
    return no_memory() ? NULL : next(count, bytes);
}

HERE void *realloc(void *memory, size_t bytes)
{
    static void *(*next)(void *, size_t);
    if (!next) next = (void *(*)(void *, size_t))next_of("realloc");
    return no_memory() ? NULL : next(memory, bytes);
}

HERE void *aligned_alloc(size_t alignment, size_t bytes)
{
    static void *(*next)(size_t, size_t);
    if (!next) next = (void *(*)(size_t, size_t))next_of("aligned_alloc");
    return no_memory() ? NULL : next(alignment, bytes);
}

HERE int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    static int (*next)(void **, size_t, size_t);
    if (!next) next = (int (*)(void **, size_t, size_t))next_of("posix_memalign");
    return no_memory() ? ENOMEM : next(memory, alignment, bytes);
}

#ifdef HAVE_JEMALLOC
/* jemalloc's operator new does not pass by malloc, that of libstdc++ does, and throws where that fails. Under
 * a sanitizer, which sees to it that new goes with delete, both stay as they are. */
HERE static void *new_of(const char *name, size_t bytes)
{
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *(*plain)(size_t) = library ? (void *(*)(size_t))dlsym(library, name) : malloc;
    return plain(bytes);
}

HERE void *_Znwm(size_t bytes)
{
    return new_of("_Znwm", bytes);
}

HERE void *_Znam(size_t bytes)
{
    return new_of("_Znam", bytes);
}
#endif
#endif

/* Threads */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *context);

HERE int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                               void *context)
{
    if (strikes(KIND_THREAD)) return fault.error;
    return __real_pthread_create(thread, attributes, start, context);
}

/* Where a thread blocks SIGSYS, its next call that is caught ends the process; so does a crash, unseen, where
 * the signals of crashes are blocked. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    static const int kept[] = {SIGSYS, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    sigset_t allowed;
    if (set) {
        allowed = *set;
        for (size_t i = 0; how != SIG_UNBLOCK && i < sizeof kept / sizeof *kept; i++)
            sigdelset(&allowed, kept[i]);
    }
    long result = call_kernel(SYS_rt_sigprocmask, how, (long)(set ? &allowed : NULL), (long)before, 8, 0, 0);
    return (int)-result;
}

/* The device: its table, with a question before every call that can fail. */

static struct {
    const struct device_backend *real;
    struct device_backend table;
} faulty;

HERE static bool is_tight(void)
{
    return fault.room > 0 && atomic_load(&fault.calls[KIND_ROOM]) >= fault.room_from;
}

HERE static void *faulty_allocate(struct device *device, size_t bytes)
{
    if (strikes(KIND_ROOM) || (is_tight() && fault.held + bytes > fault.room)) return NULL;
    void *memory = faulty.real->memory.allocate(device, bytes);
    if (memory) fault.held += bytes;
    return memory;
}

HERE static void faulty_free(struct device *device, void *memory, size_t bytes)
{
    if (memory) fault.held -= bytes;
    faulty.real->memory.free(device, memory, bytes);
}

HERE static void faulty_memory_info(struct device *device, size_t *free_bytes, size_t *total_bytes)
{
    faulty.real->memory.info(device, free_bytes, total_bytes);
    if (is_tight()) *free_bytes = fault.held < fault.room ? fault.room - fault.held : 0;
}

HERE static void *faulty_host_allocate(struct device *device, size_t bytes)
{
    return strikes(KIND_ROOM) ? NULL : faulty.real->memory.host_allocate(device, bytes);
}

HERE static enum status refused(const char *what)
{
    return fail(NO_DEVICE, "device: %s failed", what);
}

HERE static enum status faulty_upload(struct device *device, int stream, void *to, const void *from,
                                      size_t bytes)
{
    if (strikes(KIND_COPY)) return refused("copying to it");
    return faulty.real->transfers.upload(device, stream, to, from, bytes);
}

HERE static enum status faulty_download(struct device *device, int stream, void *to, const void *from,
                                        size_t bytes)
{
    if (strikes(KIND_COPY)) return refused("copying from it");
    return faulty.real->transfers.download(device, stream, to, from, bytes);
}

HERE static enum status faulty_fill_zero(struct device *device, int stream, void *memory, size_t bytes)
{
    if (strikes(KIND_COPY)) return refused("filling its memory");
    return faulty.real->transfers.fill_zero(device, stream, memory, bytes);
}

HERE static enum status faulty_event_record(struct device *device, int stream, int event)
{
    if (strikes(KIND_COPY)) return refused("marking a place");
    return faulty.real->events.record(device, stream, event);
}

HERE static enum status faulty_stream_wait_event(struct device *device, int stream, int event)
{
    if (strikes(KIND_COPY)) return refused("waiting on it");
    return faulty.real->events.stream_wait(device, stream, event);
}

HERE static enum status faulty_event_synchronize(struct device *device, int event)
{
    if (strikes(KIND_COPY)) return refused("waiting for it");
    return faulty.real->events.synchronize(device, event);
}

HERE static enum status faulty_synchronize(struct device *device)
{
    if (strikes(KIND_COPY)) return refused("waiting for all of it");
    return faulty.real->synchronize(device);
}

enum status __real_device_open(const char *which, int threads, struct device **device);
enum status __wrap_device_open(const char *which, int threads, struct device **device);

enum status __wrap_device_open(const char *which, int threads, struct device **device)
{
    TRY(__real_device_open(which, threads, device));
    faulty.real = (*device)->backend;
    faulty.table = *faulty.real;
    faulty.table.memory.allocate = faulty_allocate;
    faulty.table.memory.free = faulty_free;
    faulty.table.memory.info = faulty_memory_info;
    faulty.table.memory.host_allocate = faulty_host_allocate;
    faulty.table.transfers.upload = faulty_upload;
    faulty.table.transfers.download = faulty_download;
    faulty.table.transfers.fill_zero = faulty_fill_zero;
    faulty.table.events.record = faulty_event_record;
    faulty.table.events.stream_wait = faulty_stream_wait_event;
    faulty.table.events.synchronize = faulty_event_synchronize;
    faulty.table.synchronize = faulty_synchronize;
    (*device)->backend = &faulty.table;
    return OK;
}

/* Batches that were worked on, in training and evaluation. */

struct exec;
static char *first_parameter;                     /* of the store that was opened last */

enum status __real_store_open(struct device *device, const struct graph *graph,
                              const struct store_options *options, struct store *store);
enum status __wrap_store_open(struct device *device, const struct graph *graph,
                              const struct store_options *options, struct store *store);
enum status __real_exec_collect(struct exec *exec);
enum status __wrap_exec_collect(struct exec *exec);

enum status __wrap_store_open(struct device *device, const struct graph *graph,
                              const struct store_options *options, struct store *store)
{
    TRY(__real_store_open(device, graph, options, store));
    first_parameter = (char *)store->memory + store->layout.params[0].master;
    return OK;
}

HERE enum status __wrap_exec_collect(struct exec *exec)
{
    TRY(__real_exec_collect(exec));
    if (!strikes(KIND_BATCH)) return OK;
    if (fault.flip) *first_parameter ^= 16;
    return fault.error ? fail(NO_DEVICE, "device: a batch failed") : OK;
}

/* System calls */

#ifdef CALLS_CAN_BE_CAUGHT
struct caught_call {
    int number;
    enum value_kind kind;
};

/* System calls that are caught; of the same kind one after the other. */
static const struct caught_call caught_calls[] = {
    {SYS_mmap, KIND_MAP},           {SYS_mremap, KIND_MAP},       {SYS_brk, KIND_MAP},
    {SYS_open, KIND_OPEN},          {SYS_openat, KIND_OPEN},      {SYS_read, KIND_READ},
    {SYS_pread64, KIND_READ},       {SYS_readv, KIND_READ},       {SYS_write, KIND_WRITE},
    {SYS_pwrite64, KIND_WRITE},     {SYS_writev, KIND_WRITE},     {SYS_fsync, KIND_SYNC},
    {SYS_fdatasync, KIND_SYNC},     {SYS_rename, KIND_RENAME},    {SYS_renameat, KIND_RENAME},
    {SYS_renameat2, KIND_RENAME},   {SYS_link, KIND_RENAME},      {SYS_linkat, KIND_RENAME},
    {SYS_unlink, KIND_REMOVE},      {SYS_unlinkat, KIND_REMOVE},  {SYS_ftruncate, KIND_LENGTH},
    {SYS_fallocate, KIND_LENGTH},   {SYS_stat, KIND_STAT},        {SYS_fstat, KIND_STAT},
    {SYS_newfstatat, KIND_STAT},    {SYS_access, KIND_STAT},      {SYS_faccessat, KIND_STAT},
    {SYS_getdents64, KIND_FOLDER},  {SYS_mkdir, KIND_FOLDER},     {SYS_mkdirat, KIND_FOLDER},
    {SYS_close, KIND_CLOSE},        {SYS_lseek, KIND_SEEK},       {SYS_flock, KIND_LOCK},
};
enum { CALLS = sizeof caught_calls / sizeof *caught_calls };

static enum value_kind kind_of(int number)
{
    for (int i = 0; i < CALLS; i++)
        if (caught_calls[i].number == number) return caught_calls[i].kind;
    return KIND_NONE;
}

/* Reports of a fault are written whatever fails. */
static bool is_spared(enum value_kind kind, const greg_t *registers)
{
    return kind == KIND_WRITE && registers[REG_RDI] == 2;
}

static long call_again(int number, const greg_t *registers)
{
    return call_kernel(number, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX], registers[REG_R10],
                       registers[REG_R8], registers[REG_R9]);
}

/* Signals that are handled meanwhile do not end it. */
static void stall(void)
{
    struct timespec left = {.tv_sec = 300};
    while (call_kernel(SYS_nanosleep, (long)&left, (long)&left, 0, 0, 0, 0) == -EINTR) {}
}

/* True if the call's first argument is a descriptor of a file that is meant. */
static bool is_meant(const greg_t *registers)
{
    char link[64], path[PATH_MAX];
    if (!fault.file) return true;
    snprintf(link, sizeof link, "/proc/self/fd/%lld", (long long)registers[REG_RDI]);
    long length = call_kernel(SYS_readlink, (long)link, (long)path, sizeof path - 1, 0, 0, 0);
    if (length < 0) return false;
    path[length] = '\0';
    return strstr(path, fault.file);
}

HERE static void on_call(int signal, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    int number = info->si_syscall;
    enum value_kind kind = kind_of(number);
    bool struck = kind != KIND_NONE && !is_spared(kind, registers) && is_meant(registers) && strikes(kind);
    (void)signal;
    if (struck && fault.error) {
        /* A file that was closed with an error is closed all the same. */
        if (kind == KIND_CLOSE) call_again(number, registers);
        /* brk tells of no error: it says where the heap ends, as before. */
        registers[REG_RAX] = number == SYS_brk ? call_kernel(SYS_brk, 0, 0, 0, 0, 0, 0) : -fault.error;
        return;
    }
    if (struck && fault.stall) stall();
    else if (struck && fault.pause) raise(SIGSTOP);
    else if (struck && registers[REG_RDX] > 1) registers[REG_RDX] /= 2;
    registers[REG_RAX] = call_again(number, registers);
}

/* Where the code of the C library lies. */
struct range {
    uintptr_t from, to;
};

static int find_library(struct dl_phdr_info *info, size_t size, void *context)
{
    struct range *range = context;
    (void)size;
    if (!strstr(info->dlpi_name, "/libc.so")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        range->from = info->dlpi_addr + part->p_vaddr;
        range->to = range->from + part->p_memsz;
    }
    return 1;
}

static struct sock_filter load(size_t offset)
{
    return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset);
}

/* Instruction `from`: where it goes on if the test holds, and if not. */
static struct sock_filter jump(int from, int test, uint32_t value, int yes, int no)
{
    return (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | test | BPF_K), value, (uint8_t)(yes - from - 1),
                                        (uint8_t)(no - from - 1));
}

/* The filter's numbers have 32 bits: one that would need more for the library starts the program anew, whose
 * libraries then lie elsewhere. */
static void start_elsewhere(char **words)
{
    if (getenv("FAULT_ELSEWHERE")) return;
    setenv("FAULT_ELSEWHERE", "yes", 1);
    execv("/proc/self/exe", words);
}

static bool catch_calls(char **words)
{
    struct range range = {0, 0};
    dl_iterate_phdr(find_library, &range);
    if (range.from >> 32 != range.to >> 32) start_elsewhere(words);
    if (!range.from || range.from >> 32 != range.to >> 32) return false;
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    sigaction(SIGSYS, &action, NULL);
    /* Calls from elsewhere, and those that are not in the list, are not seen. */
    enum { HEAD = 6, ALLOW = HEAD + CALLS, TRAP };
    struct sock_filter filter[TRAP + 1];
    filter[0] = load(offsetof(struct seccomp_data, instruction_pointer));
    filter[1] = jump(1, BPF_JGE, (uint32_t)range.from, 2, ALLOW);
    filter[2] = jump(2, BPF_JGE, (uint32_t)range.to, ALLOW, 3);
    filter[3] = load(offsetof(struct seccomp_data, instruction_pointer) + 4);
    filter[4] = jump(4, BPF_JEQ, (uint32_t)(range.from >> 32), 5, ALLOW);
    filter[5] = load(offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++)
        filter[HEAD + i] = jump(HEAD + i, BPF_JEQ, (uint32_t)caught_calls[i].number, TRAP, HEAD + i + 1);
    filter[ALLOW] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[TRAP] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {.len = TRAP + 1, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#else
static bool catch_calls(char **words)
{
    (void)words;
    return false;
}
#endif

/* The kind of call to fail */

static const struct {
    const char *name;
    int error;
} errors[] = {
    {"ENOMEM", ENOMEM}, {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EINTR", EINTR},
    {"EMFILE", EMFILE}, {"EAGAIN", EAGAIN}, {"EACCES", EACCES}, {"EROFS", EROFS},   {"ESTALE", ESTALE},
    {"ENOENT", ENOENT}, {"EPIPE", EPIPE},   {"ENOLCK", ENOLCK}, {"ENOSYS", ENOSYS},
};

static void refuse(const char *text)
{
    fprintf(stderr, "faults: '%s' is neither KIND:K:HOW[:on] nor BYTES[@K]\n", text);
    _exit(99);
}

static void parse(const char *text)
{
    char kind[16], how[16];
    int end = 0;
    if (sscanf(text, "%15[a-z-]:%ld:%15[A-Za-z]%n", kind, &fault.at, how, &end) != 3) refuse(text);
    for (int i = 0; i < KIND_COUNT; i++)
        if (strcmp(kind_name[i], kind) == 0) fault.kind = (enum value_kind)i;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, how) == 0) fault.error = errors[i].error;
    fault.stall = strcmp(how, "stall") == 0;
    fault.pause = strcmp(how, "pause") == 0;
    fault.kill = strcmp(how, "kill") == 0;
    fault.flip = strcmp(how, "flip") == 0;
    fault.on = strcmp(text + end, ":on") == 0;
    bool known = fault.error || fault.stall || fault.pause || fault.kill || fault.flip ||
                 strcmp(how, "short") == 0;
    if (fault.flip && fault.kind != KIND_BATCH) refuse(text);
    if (fault.kind == KIND_NONE || !known || fault.at < 1 || (text[end] && !fault.on)) refuse(text);
}

static void parse_room(const char *text)
{
    if (sscanf(text, "%zu@%ld", &fault.room, &fault.room_from) < 1) refuse(text);
}

/* Far from the descriptors that the program is given. */
static void open_fired(const char *path)
{
    fault.fired = path ? create(path) : -1;
    if (fault.fired >= 0) fault.fired = call_kernel(SYS_fcntl, fault.fired, F_DUPFD_CLOEXEC, 200, 0, 0, 0);
}

#ifdef __SANITIZE_ADDRESS__
/* Sanitizers have a word to say themselves. */
static void watch_crashes(void) {}
#else
HERE static void on_crash(int number)
{
    tell("crash", true);
    raise(number);
}

static void watch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_RESETHAND | SA_NODEFER};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}
#endif

/* True if it is another rank, or their launcher, that is meant. */
static bool is_another(void)
{
    const char *meant = getenv("FAULT_RANK"), *own = getenv("AMPTRAIN_RANK");
    return meant && (!own || strcmp(meant, own) != 0);
}

/* A program that cannot be made to fail ends with 77. */
static void begin(char **words)
{
    void *primed[4];
    const char *text = getenv("FAULT");
    if (is_another()) return;
    fault.counts = getenv("FAULT_COUNTS");
    fault.file = getenv("FAULT_FILE");
    fault.trace = getenv("FAULT_TRACE") != NULL;
    backtrace(primed, 4);
    open_fired(getenv("FAULT_FIRED"));
    watch_crashes();
    if (text) parse(text);
    if (getenv("FAULT_ROOM")) parse_room(getenv("FAULT_ROOM"));
    if (!catch_calls(words)) {
        fprintf(stderr, "faults: no system calls can be caught here\n");
        _exit(77);
    }
    fault.ready = true;
}

/* After all constructors: the program's own ones, too, can be a library's,
 * as those of a static CUDA runtime. */
int __real_main(int count, char **words);
int __wrap_main(int count, char **words);

HERE int __wrap_main(int count, char **words)
{
    begin(words);
    return __real_main(count, words);
}

__attribute__((destructor)) static void end(void)
{
    fault.ready = false;
    if (!fault.counts) return;
    char line[64];
    long file = create(fault.counts);
    for (int i = 0; i < KIND_COUNT; i++) {
        snprintf(line, sizeof line, "%s %ld\n", kind_name[i], atomic_load(&fault.calls[i]));
        put(file, line);
    }
    snprintf(line, sizeof line, "held %zu\n", (size_t)fault.held);
    put(file, line);
    call_kernel(SYS_close, file, 0, 0, 0, 0, 0);
}
