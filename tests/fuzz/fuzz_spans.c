/* Tables of lifetimes (plan --spans): what is read is packed, and the packing checked. */
#include "fuzz.h"

#include <stdlib.h>

#include "alloc/check.h"
#include "alloc/pack.h"

#define PACKED_MAX 200         /* spans; more would only take time */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static void pack(struct span *spans, int count, int64_t alignment)
{
    struct reason reason = fuzz_reason();
    int64_t bound = pack_bound(spans, count, alignment);
    int64_t peak = pack_spans(spans, count, alignment, 0, 0.002);
    fuzz_must(bound >= 0 && peak >= bound);
    fuzz_must(check_spans(spans, count, alignment, peak, &reason));
    fuzz_must(peak == 0 || alignment > 1 || !check_spans(spans, count, alignment, peak - 1, &reason));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span *spans;
    char **ids;
    int count;
    const char *path = fuzz_write("fuzz.csv", data, size);
    if (!fuzz_good(pack_read_csv(path, &spans, &ids, &count), "fuzz.csv")) return 0;
    for (int i = 0; i < count; i++)
        fuzz_must(spans[i].lower < spans[i].upper && spans[i].size >= 0 && ids[i][0]);
    if (count <= PACKED_MAX) pack(spans, count, size % 2 ? 1 : 256);
    for (int i = 0; i < count; i++) free(ids[i]);
    free(ids);
    free(spans);
    return 0;
}
