#include "device/cuda_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "device/cuda_driver.h"

#define USUAL_GRANULARITY ((size_t)2 << 20)

/* The driver's functions, looked up at run time: programs then start without a driver too. CUDA C Programming
 * Guide, "Virtual Memory Management". */
struct driver {
    CUresult(CUDAAPI *granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    CUresult(CUDAAPI *reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult(CUDAAPI *unreserve)(CUdeviceptr, size_t);
    CUresult(CUDAAPI *create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                              unsigned long long);
    CUresult(CUDAAPI *release)(CUmemGenericAllocationHandle);
    CUresult(CUDAAPI *map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult(CUDAAPI *unmap)(CUdeviceptr, size_t);
    CUresult(CUDAAPI *access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult(CUDAAPI *attribute)(int *, CUdevice_attribute, CUdevice);
};

struct cuda_memory {
    struct device *device;
    struct driver driver;
    bool has_ranges;
    size_t granularity;
    CUmemAllocationProp properties;
};

static bool driver_find(const char *name, void *function)
{
    return cuda_driver_find(name, 10020, function);
}

static bool driver_open(struct driver *driver)
{
    return driver_find("cuMemGetAllocationGranularity", &driver->granularity) &&
           driver_find("cuMemAddressReserve", &driver->reserve) &&
           driver_find("cuMemAddressFree", &driver->unreserve) &&
           driver_find("cuMemCreate", &driver->create) && driver_find("cuMemRelease", &driver->release) &&
           driver_find("cuMemMap", &driver->map) && driver_find("cuMemUnmap", &driver->unmap) &&
           driver_find("cuMemSetAccess", &driver->access) &&
           driver_find("cuDeviceGetAttribute", &driver->attribute);
}

/* Other processes' devices may be given memory to reach, where the driver can. */
static CUmemAllocationHandleType handle_type(const struct cuda_memory *memory)
{
    int supported = 0;
    memory->driver.attribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                             memory->device->index);
    return supported ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
}

static bool ranges_open(struct cuda_memory *memory)
{
    struct driver *driver = &memory->driver;
    int supported = 0;
    memory->properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->device->index},
    };
    if (!driver_open(driver)) return false;
    memory->properties.requestedHandleTypes = handle_type(memory);
    return driver->attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                             memory->device->index) == CUDA_SUCCESS && supported &&
           driver->granularity(&memory->granularity, &memory->properties,
                               CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
}

struct cuda_memory *cuda_memory_open(struct device *device)
{
    struct cuda_memory *memory = memory_new(1, sizeof *memory);
    memory->device = device;
    memory->has_ranges = ranges_open(memory);
    if (!memory->has_ranges) {
        memory->granularity = USUAL_GRANULARITY;
        log_detail("cuda:%d: no virtual memory management; using cudaMalloc", device->index);
    }
    return memory;
}

void cuda_memory_close(struct cuda_memory *memory)
{
    free(memory);
}

static void *range_reserve(void *context, size_t bytes)
{
    struct cuda_memory *memory = context;
    CUdeviceptr range;
    CUresult result = memory->driver.reserve(&range, bytes, memory->granularity, 0, 0);
    return result == CUDA_SUCCESS ? (void *)range : NULL;
}

static void range_unreserve(void *context, void *range, size_t bytes)
{
    struct cuda_memory *memory = context;
    memory->driver.unreserve((CUdeviceptr)range, bytes);
}

/* Readable and writable for this GPU only. */
static bool open_access(struct cuda_memory *memory, CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = memory->properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return memory->driver.access(at, bytes, &access, 1) == CUDA_SUCCESS;
}

/* The handle is let go at once: the memory then lives as long as it is mapped. */
static void *range_map(void *context, void *at, size_t bytes)
{
    struct cuda_memory *memory = context;
    const struct driver *driver = &memory->driver;
    CUmemGenericAllocationHandle handle;
    if (driver->create(&handle, bytes, &memory->properties, 0) != CUDA_SUCCESS) return NULL;
    CUresult mapped = driver->map((CUdeviceptr)at, bytes, 0, handle, 0);
    driver->release(handle);
    if (mapped != CUDA_SUCCESS) return NULL;
    if (open_access(memory, (CUdeviceptr)at, bytes)) return at;
    driver->unmap((CUdeviceptr)at, bytes);
    return NULL;
}

static void range_unmap(void *context, void *at, size_t bytes)
{
    struct cuda_memory *memory = context;
    memory->driver.unmap((CUdeviceptr)at, bytes);
}

static void *memory_map(void *context, void *at, size_t bytes)
{
    struct cuda_memory *memory = context;
    return memory->device->backend->memory.allocate(memory->device, bytes);
}

static void memory_unmap(void *context, void *at, size_t bytes)
{
    struct cuda_memory *memory = context;
    memory->device->backend->memory.free(memory->device, at, bytes);
}

static size_t memory_left(void *context)
{
    struct cuda_memory *memory = context;
    size_t left, total;
    memory->device->backend->memory.info(memory->device, &left, &total);
    return left;
}

static bool memory_synchronize(void *context)
{
    struct cuda_memory *memory = context;
    return memory->device->backend->synchronize(memory->device) == OK;
}

struct physical cuda_memory_physical(struct cuda_memory *memory)
{
    bool ranges = memory->has_ranges;
    return (struct physical){
        .context = memory,
        .granularity = memory->granularity,
        .reserve = ranges ? range_reserve : NULL,
        .unreserve = ranges ? range_unreserve : NULL,
        .map = ranges ? range_map : memory_map,
        .unmap = ranges ? range_unmap : memory_unmap,
        .free_bytes = memory_left,
        .synchronize = memory_synchronize,
    };
}
