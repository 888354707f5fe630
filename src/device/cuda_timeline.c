/* cuda_timeline.c: CUPTI is loaded on first use, so that the program runs without it. A kernel of a captured
 * graph is identified by its node: an instruction's number is attached to the node when it is captured, and
 * is found again through the copy of that node in the launched graph, which activities refer to. */
#include "device/cuda_timeline.h"

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/library.h"
#include "base/memory.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
static void range_push(const char *name) { nvtxRangePushA(name); }
static void range_pop(void) { nvtxRangePop(); }
#else
static void range_push(const char *name) { (void)name; }
static void range_pop(void) {}
#endif

#if __has_include(<cupti.h>)
#include <cupti.h>

#define BUFFER_BYTES (4u << 20)

/* The functions of CUPTI that are used here. */
#define FUNCTIONS(X) \
    X(cuptiSubscribe) X(cuptiUnsubscribe) X(cuptiEnableCallback) X(cuptiGetGraphNodeId) \
    X(cuptiActivityRegisterCallbacks) X(cuptiActivityEnable) X(cuptiActivityDisable) \
    X(cuptiActivityFlushAll) X(cuptiActivityGetNextRecord) X(cuptiGetResultString) X(cuptiGetTimestamp)

/* A node of a graph. */
struct node {
    CUgraphNode node;
    uint64_t id;
    int tag;
};

struct functions {
    FUNCTIONS(LIBRARY_MEMBER)
};
static const char *const names[] = {FUNCTIONS(LIBRARY_NAME) NULL};

struct cuda_timeline {
    struct functions call;
    CUpti_SubscriberHandle subscriber;
    struct node *nodes;
    int node_count;
    struct device_activity *activities;
    int count;
    int64_t ahead;                   /* of CUPTI's clock, that of clock_nanoseconds */
};

/* CUPTI knows one user of activities in a process, and calls back without a place for what is ours. */
static struct cuda_timeline timeline;
static _Thread_local int tag_now = -1;

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

/* Loads CUPTI by the name that this CUDA's version has, or that it has where it is installed for
 * development. */
static bool load(struct functions *call, struct reason *why)
{
    char name[32];
    snprintf(name, sizeof name, "libcupti.so.%d", CUDART_VERSION / 1000);
    return library_open(name, names, call, why) || library_open("libcupti.so", names, call, why);
}

static bool good(const struct cuda_timeline *t, CUptiResult result, struct reason *why)
{
    const char *words = "unknown";
    if (result == CUPTI_SUCCESS) return true;
    t->call.cuptiGetResultString(result, &words);
    return because(why, "CUPTI: %s", words);
}

static int tag_of(const struct cuda_timeline *t, uint64_t id)
{
    for (int i = t->node_count - 1; id != 0 && i >= 0; i--)
        if (t->nodes[i].id == id) return t->nodes[i].tag;
    return -1;
}

/* The newest with this address. */
static int tag_of_node(const struct cuda_timeline *t, CUgraphNode node)
{
    for (int i = t->node_count - 1; i >= 0; i--)
        if (t->nodes[i].node == node) return t->nodes[i].tag;
    return -1;
}

static void node_add(struct cuda_timeline *t, CUgraphNode node, int tag)
{
    uint64_t id;
    if (t->call.cuptiGetGraphNodeId(node, &id) == CUPTI_SUCCESS)
        *array_push(t->nodes, t->node_count) = (struct node){node, id, tag};
}

bool cuda_timeline_on(void) { return timeline.subscriber; }

static void CUPTIAPI resource_changed(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                      const void *data)
{
    struct cuda_timeline *t = context;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
    const CUpti_GraphData *graph = ((const CUpti_ResourceData *)data)->resourceDescriptor;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) node_add(t, graph->node, tag_now);
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
        node_add(t, graph->node, tag_of_node(t, graph->originalNode));
}

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *bytes, size_t *records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *records = 0;
}

/* "void name<parameters>(arguments)" becomes "name<parameters>". */
char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);
static char *kernel_name(const char *mangled)
{
    int status;
    char *name = mangled ? __cxa_demangle(mangled, NULL, NULL, &status) : NULL;
    if (!name) return text_copy(mangled ? mangled : "kernel");
    char *begin = strncmp(name, "void ", 5) == 0 ? name + 5 : name, *end = strrchr(begin, '(');
    if (end && end > begin) *end = '\0';
    char *copy = text_copy(begin);
    free(name);
    return copy;
}

static void activity_add(struct cuda_timeline *t, struct device_activity activity, uint64_t node)
{
    activity.tag = tag_of(t, node);
    activity.begin += t->ahead;
    activity.end += t->ahead;
    *array_push(t->activities, t->count) = activity;
}

static void record_add(struct cuda_timeline *t, const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel9 *at = (const void *)record;
        activity_add(t, (struct device_activity){.name = kernel_name(at->name), .run = at->correlationId,
                                                 .begin = (int64_t)at->start, .end = (int64_t)at->end},
                     at->graphNodeId);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy5 *at = (const void *)record;
        bool up = at->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
        bool down = at->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
        activity_add(t, (struct device_activity){
                            .name = text_copy(up ? "copy to device" : down ? "copy to host" : "copy"),
                            .copy = true, .run = at->correlationId, .bytes = (int64_t)at->bytes,
                            .begin = (int64_t)at->start, .end = (int64_t)at->end},
                     at->graphNodeId);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
        const CUpti_ActivityMemcpyPtoP4 *at = (const void *)record;
        activity_add(t, (struct device_activity){.name = text_copy("copy to another GPU"), .copy = true,
                                                 .run = at->correlationId, .bytes = (int64_t)at->bytes,
                                                 .begin = (int64_t)at->start, .end = (int64_t)at->end},
                     at->graphNodeId);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *at = (const void *)record;
        activity_add(t, (struct device_activity){.name = text_copy("fill"), .run = at->correlationId,
                                                 .begin = (int64_t)at->start, .end = (int64_t)at->end},
                     at->graphNodeId);
    }
}

static void CUPTIAPI buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    CUpti_Activity *record = NULL;
    while (timeline.call.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        record_add(&timeline, record);
    free(buffer);
}

static void unsubscribe(struct cuda_timeline *t)
{
    t->call.cuptiUnsubscribe(t->subscriber);
    t->subscriber = NULL;
}

static bool enable(struct cuda_timeline *t, struct reason *why)
{
    static const CUpti_CallbackId changes[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                               CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};
    if (!good(t, t->call.cuptiSubscribe(&t->subscriber, resource_changed, t), why)) return false;
    bool done = true;
    for (int i = 0; i < 2 && done; i++)
        done = good(t, t->call.cuptiEnableCallback(1, t->subscriber, CUPTI_CB_DOMAIN_RESOURCE, changes[i]),
                    why);
    done = done && good(t, t->call.cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full), why);
    for (int i = 0; i < KINDS && done; i++) done = good(t, t->call.cuptiActivityEnable(kinds[i]), why);
    if (!done) unsubscribe(t);
    return done;
}

static bool timeline_begin(struct device *device, struct reason *why)
{
    (void)device;
    uint64_t now;
    if (!timeline.call.cuptiSubscribe && !load(&timeline.call, why)) return false;
    if (!good(&timeline, timeline.call.cuptiGetTimestamp(&now), why)) return false;
    timeline.ahead = clock_nanoseconds() - (int64_t)now;
    return enable(&timeline, why);
}

static void timeline_end(struct device *device, struct device_activity **activities, int *count)
{
    struct cuda_timeline *t = &timeline;
    (void)device;
    cudaDeviceSynchronize();
    t->call.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (int i = 0; i < KINDS; i++) t->call.cuptiActivityDisable(kinds[i]);
    unsubscribe(t);
    *activities = t->activities;
    *count = t->count;
    free(t->nodes);
    t->activities = NULL;
    t->nodes = NULL;
    t->count = t->node_count = 0;
}

static void tag_set(int tag) { tag_now = tag; }
#else
static bool timeline_begin(struct device *device, struct reason *why)
{
    (void)device;
    return because(why, "this build has no CUPTI");
}

static void timeline_end(struct device *device, struct device_activity **activities, int *count)
{
    (void)device;
    *activities = NULL;
    *count = 0;
}

static void tag_set(int tag) { (void)tag; }
bool cuda_timeline_on(void) { return false; }
#endif

static void timeline_tag(struct device *device, int tag, const char *name)
{
    (void)device;
    tag_set(tag);
    if (name) range_push(name);
    else range_pop();
}

const struct device_timeline cuda_timeline = {
    .begin = timeline_begin, .end = timeline_end, .tag = timeline_tag,
};
