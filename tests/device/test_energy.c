/* Energy counters: of processors, in files like Linux's, and of a GPU, by a library in the place of NVML. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/nvml.h"
#include "device/rapl.h"
#include "tests/support/files.h"
#include "tests/support/unit.h"

static void write_zone(const char *root, int zone, const char *name, const char *content)
{
    char *path = text_format("sys/class/powercap/intel-rapl:%d/%s", zone, name);
    case_write_text(root, path, content);
    free(path);
}

static void assert_joules(double found, double expected)
{
    assert_true(fabs(found - expected) < 1e-6);
}

/* Two packages, and the whole board, which includes them. */
static void test_packages(void **state)
{
    char *root = case_folder();
    write_zone(root, 0, "name", "package-0\n");
    write_zone(root, 0, "energy_uj", "1000000\n");
    write_zone(root, 0, "max_energy_range_uj", "262143328850\n");
    write_zone(root, 1, "name", "psys\n");
    write_zone(root, 1, "energy_uj", "5\n");
    write_zone(root, 2, "name", "package-1-die-0\n");
    write_zone(root, 2, "energy_uj", "262143000000\n");
    write_zone(root, 2, "max_energy_range_uj", "262143328850\n");
    struct rapl *rapl = rapl_open(root);
    assert_joules(rapl_joules(rapl), 0);
    write_zone(root, 0, "energy_uj", "3500000\n");
    write_zone(root, 1, "energy_uj", "900000000\n");
    assert_joules(rapl_joules(rapl), 2.5);
    write_zone(root, 2, "energy_uj", "671150\n");        /* it has wrapped */
    assert_joules(rapl_joules(rapl), 3.5);
    assert_joules(rapl_joules(rapl), 3.5);
    case_unlink(root, "sys/class/powercap/intel-rapl:0/energy_uj");
    assert_true(isnan(rapl_joules(rapl)));
    rapl_close(rapl);
    case_remove(root);
}

static void expect_no_counters(const char *root)
{
    struct rapl *rapl = rapl_open(root);
    assert_true(isnan(rapl_joules(rapl)));
    assert_true(isnan(rapl_joules(rapl)));
    rapl_close(rapl);
}

/* There are none, or one that says nothing; or a wrapped one whose range is unknown. */
static void test_no_counters(void **state)
{
    char *root = case_folder();
    expect_no_counters(root);
    write_zone(root, 0, "name", "package-0\n");
    expect_no_counters(root);
    write_zone(root, 0, "energy_uj", "\n");
    expect_no_counters(root);
    write_zone(root, 0, "energy_uj", "1000000\n");
    struct rapl *rapl = rapl_open(root);
    write_zone(root, 0, "energy_uj", "0\n");
    assert_true(isnan(rapl_joules(rapl)));
    rapl_close(rapl);
    rapl_close(NULL);
    case_remove(root);
}

/* NVML, which knows one GPU. The test is linked with --wrap for its calls of dlopen and dlsym. */
static struct {
    bool missing, lacks_energy, begun;
    unsigned long long millijoules;
} library;

static int init(void)
{
    library.begun = true;
    return 0;
}

static int find_gpu(const char *bus, void **gpu)
{
    if (strcmp(bus, "0000:3b:00.0") != 0) return 6;
    *gpu = &library;
    return 0;
}

static int read_energy(void *gpu, unsigned long long *millijoules)
{
    assert_ptr_equal(gpu, &library);
    assert_true(library.begun);
    *millijoules = library.millijoules;
    return 0;
}

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *from, const char *name);

void *__wrap_dlopen(const char *name, int flags)
{
    assert_string_equal(name, "libnvidia-ml.so.1");
    return library.missing ? NULL : &library;
}

void *__wrap_dlsym(void *from, const char *name)
{
    assert_ptr_equal(from, &library);
    if (strcmp(name, "nvmlInit_v2") == 0) return (void *)init;
    if (strcmp(name, "nvmlDeviceGetHandleByPciBusId_v2") == 0) return (void *)find_gpu;
    if (strcmp(name, "nvmlDeviceGetTotalEnergyConsumption") == 0 && !library.lacks_energy)
        return (void *)read_energy;
    return NULL;
}

static void test_gpu(void **state)
{
    library.millijoules = 1ULL << 42;
    struct nvml *nvml = nvml_open("0000:3b:00.0");
    double before = nvml_joules(nvml);
    library.millijoules += 1500;
    assert_joules(nvml_joules(nvml) - before, 1.5);
    nvml_close(nvml);
    nvml_close(NULL);
}

static void expect_unknown(const char *bus)
{
    struct nvml *nvml = nvml_open(bus);
    assert_true(isnan(nvml_joules(nvml)));
    nvml_close(nvml);
}

static void test_unknown_gpu(void **state)
{
    expect_unknown("0000:5e:00.0");
    library.lacks_energy = true;
    expect_unknown("0000:3b:00.0");
    library.missing = true;
    expect_unknown("0000:3b:00.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packages),
        cmocka_unit_test(test_no_counters),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_unknown_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
