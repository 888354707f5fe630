/* Host memory as a system's files tell it: the machine's, and what control groups of both versions leave. */
#include "base/host.h"
#include "tests/support/files.h"
#include "tests/support/unit.h"

#define MIB ((size_t)1 << 20)
#define MEMINFO "/proc/meminfo", "MemTotal:  1048576 kB\nMemFree:  1 kB\nMemAvailable:  524288 kB\n"
#define FILES_MAX 12

/* Paths, each followed by what the file holds; NULL ends them. */
typedef const char *const files[2 * FILES_MAX + 1];

static void expect(files files, size_t available, size_t total)
{
    char *root = case_folder();
    size_t found[2];
    for (int i = 0; files[i]; i += 2) case_write_text(root, files[i] + 1, files[i + 1]);
    host_memory_under(root, &found[0], &found[1]);
    case_remove(root);
    assert_int_equal(found[0], available);
    assert_int_equal(found[1], total);
}

static void test_machine(void **state)
{
    expect((files){MEMINFO}, 512 * MIB, 1024 * MIB);
    expect((files){"/proc/version", "", NULL}, 0, 0);
}

/* The group uses 150 of 200 MiB, of which 30 can be given up. */
static void test_version_2(void **state)
{
    expect((files){MEMINFO, "/proc/self/cgroup", "0::/a/job\n",
                   "/sys/fs/cgroup/a/job/memory.max", "209715200\n",
                   "/sys/fs/cgroup/a/job/memory.current", "157286400\n",
                   "/sys/fs/cgroup/a/job/memory.stat", "anon 1\nactive_file 7\ninactive_file 31457280\n"},
           80 * MIB, 200 * MIB);
}

static void test_version_1(void **state)
{
    expect((files){MEMINFO, "/proc/self/cgroup", "5:cpu:/job\n4:memory:/job\n",
                   "/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n",
                   "/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "157286400\n",
                   "/sys/fs/cgroup/memory/job/memory.stat",
                   "inactive_file 5\ntotal_inactive_file 31457280\n"},
           80 * MIB, 200 * MIB);
}

/* A group without a limit of its own is within those above it, the root as a container sees it included. */
static void test_groups_above(void **state)
{
    expect((files){MEMINFO, "/proc/self/cgroup", "0::/a/job\n",
                   "/sys/fs/cgroup/a/job/memory.max", "max\n",
                   "/sys/fs/cgroup/a/job/memory.current", "1048576\n",
                   "/sys/fs/cgroup/a/memory.max", "104857600\n",
                   "/sys/fs/cgroup/a/memory.current", "10485760\n"},
           90 * MIB, 100 * MIB);
    expect((files){MEMINFO, "/proc/self/cgroup", "0::/elsewhere\n",
                   "/sys/fs/cgroup/memory.max", "104857600\n"},
           100 * MIB, 100 * MIB);
}

/* Use beyond the limit leaves nothing; no group gives more than the machine has. */
static void test_bounds(void **state)
{
    expect((files){MEMINFO, "/proc/self/cgroup", "0::/\n",
                   "/sys/fs/cgroup/memory.max", "1048576\n", "/sys/fs/cgroup/memory.current", "2097152\n"},
           1, MIB);
    expect((files){MEMINFO, "/proc/self/cgroup", "0::/\n",
                   "/sys/fs/cgroup/memory.max", "838860800\n", "/sys/fs/cgroup/memory.current", "0\n"},
           512 * MIB, 800 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine),      cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_version_1),    cmocka_unit_test(test_groups_above),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
