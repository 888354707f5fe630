#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/checksum.h"
#include "format/safetensors.h"

/* The order of types in the format's own library, which writes the largest number first. */
static const int dtype_order[DTYPE_COUNT] = {
    [U8] = 0, [F16] = 1, [BF16] = 2, [I32] = 3, [F32] = 4, [F64] = 5, [I64] = 6,
};

/* Bytes after which the system is asked to write to the disk, while what follows is prepared. */
#define WRITTEN_PIECE ((int64_t)8 << 20)

struct writer {
    const struct safetensors_content *content;
    int *order;                 /* items as they follow in the file */
    uint32_t *checksums;        /* by item */
    int64_t largest;            /* bytes of the largest tensor */
    int64_t queued;             /* where in the file what is not yet on its way to the disk begins */
};

static int64_t item_bytes(const struct safetensors_item *item)
{
    return shape_count(item->shape) * (int64_t)dtype_bytes(item->dtype);
}

static int by_type_and_name(const void *a, const void *b, void *context)
{
    const struct safetensors_item *items = context;
    const struct safetensors_item *x = &items[*(const int *)a], *y = &items[*(const int *)b];
    if (x->dtype != y->dtype) return dtype_order[y->dtype] - dtype_order[x->dtype];
    return strcmp(x->name, y->name);
}

static void writer_sort(struct writer *writer)
{
    const struct safetensors_content *content = writer->content;
    for (int i = 0; i < content->count; i++) {
        writer->order[i] = i;
        int64_t bytes = item_bytes(&content->items[i]);
        if (bytes > writer->largest) writer->largest = bytes;
    }
    qsort_r(writer->order, (size_t)content->count, sizeof(int), by_type_and_name, (void *)content->items);
}

static void add_metadata(const struct writer *writer, struct text *header)
{
    text_add(header, "\"__metadata__\":{\"" CHECKSUM_HEADER_KEY "\":\"00000000\"");
    for (int i = 0; i < writer->content->metadata_count; i++) {
        text_add(header, ",");
        text_json_string(header, writer->content->metadata[i].key);
        text_add(header, ":");
        text_json_string(header, writer->content->metadata[i].value);
    }
    for (int i = 0; i < writer->content->count; i++) {
        char checksum[CHECKSUM_TEXT];
        checksum_text(writer->checksums[i], checksum);
        char *key = checksum_key(writer->content->items[i].name);
        text_add(header, ",");
        text_json_string(header, key);
        text_add(header, ":\"%s\"", checksum);
        free(key);
    }
    text_add(header, "}");
}

static void add_entry(const struct safetensors_item *item, int64_t begin, struct text *header)
{
    text_json_string(header, item->name);
    text_add(header, ":{\"dtype\":\"%s\",\"shape\":[", dtype_table[item->dtype].safetensors);
    for (int i = 0; i < item->shape.rank; i++)
        text_add(header, "%s%" PRId64, i ? "," : "", item->shape.dim[i]);
    text_add(header, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, begin + item_bytes(item));
}

/* The header with the checksums as they are known so far: its length does not depend on them. */
static struct text writer_header(const struct writer *writer)
{
    struct text header = {0};
    text_add(&header, "{");
    add_metadata(writer, &header);
    int64_t begin = 0;
    for (int i = 0; i < writer->content->count; i++) {
        const struct safetensors_item *item = &writer->content->items[writer->order[i]];
        text_add(&header, ",");
        add_entry(item, begin, &header);
        begin += item_bytes(item);
    }
    text_add(&header, "}");
    while (header.length % 8) text_add(&header, " ");
    char checksum[CHECKSUM_TEXT];
    checksum_header(header.data, header.length, checksum);
    memcpy(checksum_place(header.data), checksum, CHECKSUM_TEXT - 1);
    return header;
}

static enum status write_failed(const char *path)
{
    return fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static bool write_tensor(struct writer *writer, int file, const char *data, int64_t bytes, int64_t at)
{
    for (int64_t piece; bytes > 0; data += piece, at += piece, bytes -= piece) {
        piece = bytes < WRITTEN_PIECE ? bytes : WRITTEN_PIECE;
        if (!file_write(file, data, (size_t)piece, at)) return false;
        int64_t waiting = at + piece - writer->queued;
        if (waiting < WRITTEN_PIECE) continue;
        /* Only fsync tells whether it has arrived; file systems that cannot do this write it all then. */
        sync_file_range(file, writer->queued, waiting, SYNC_FILE_RANGE_WRITE);
        writer->queued += waiting;
    }
    return true;
}

static enum status write_tensors(struct writer *writer, int file, const char *path, int64_t at, void *buffer)
{
    for (int i = 0; i < writer->content->count; i++) {
        int item = writer->order[i];
        size_t bytes = (size_t)item_bytes(&writer->content->items[item]);
        TRY(writer->content->read(writer->content->context, item, buffer));
        writer->checksums[item] = crc32c(0, buffer, bytes);
        if (!write_tensor(writer, file, buffer, (int64_t)bytes, at)) return write_failed(path);
        at += (int64_t)bytes;
    }
    return OK;
}

static enum status write_header(const struct writer *writer, int file, const char *path)
{
    struct text header = writer_header(writer);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)header.length >> (8 * i));
    bool good = file_write(file, length, 8, 0) && file_write(file, header.data, header.length, 8);
    text_free(&header);
    return good ? OK : write_failed(path);
}

static enum status write_all(struct writer *writer, int file, const char *path)
{
    struct text header = writer_header(writer);
    int64_t data = 8 + (int64_t)header.length;
    text_free(&header);
    void *buffer = memory_try((size_t)writer->largest, 1);
    if (!buffer) return fail(FAILED, "%s: not enough host memory to write it", path);
    enum status status = write_tensors(writer, file, path, data, buffer);
    free(buffer);
    TRY(status);
    TRY(write_header(writer, file, path));
    return fsync(file) == 0 ? OK : write_failed(path);
}

static enum status write_content(int file, const char *path, const struct safetensors_content *content)
{
    struct writer writer = {
        .content = content,
        .order = memory_new((size_t)content->count, sizeof(int)),
        .checksums = memory_new((size_t)content->count, sizeof(uint32_t)),
    };
    writer_sort(&writer);
    enum status status = write_all(&writer, file, path);
    if (close(file) != 0 && status == OK) status = write_failed(path);
    free(writer.order);
    free(writer.checksums);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_content *content)
{
    return safetensors_write_in(&directory_working, path, content);
}

enum status safetensors_write_in(const struct directory *in, const char *name,
                                 const struct safetensors_content *content)
{
    struct reason reason;
    if (content->count > SAFETENSORS_TENSORS_MAX)
        return fail(FAILED, "%s: %d tensors are more than the maximum of %d", name, content->count,
                    SAFETENSORS_TENSORS_MAX);
    int file = directory_file(in, name, O_WRONLY | O_CREAT | O_TRUNC, &reason);
    if (file < 0) return directory_refuse(in, name, reason.text);
    char *path = directory_show(in, name);
    enum status status = write_content(file, path, content);
    free(path);
    return status;
}
