#include "format/torch_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/memory.h"
#include "format/pickle.h"

/* The names that a state_dict and the plain data around it need. The role of a storage is its dtype. */
enum param_role { SKIPPED = DTYPE_COUNT, TENSOR, PARAMETER, UNSUPPORTED };

static const struct pickle_global globals[] = {
    {"collections", "OrderedDict", SKIPPED, true},
    {"torch._utils", "_rebuild_tensor_v2", TENSOR, false},
    {"torch._utils", "_rebuild_tensor", TENSOR, false},
    {"torch._utils", "_rebuild_parameter", PARAMETER, false},
    {"torch._utils", "_rebuild_parameter_with_state", PARAMETER, false},
    {"torch", "FloatStorage", F32, false},
    {"torch", "HalfStorage", F16, false},
    {"torch", "BFloat16Storage", BF16, false},
    {"torch", "DoubleStorage", F64, false},
    {"torch", "LongStorage", I64, false},
    {"torch", "IntStorage", I32, false},
    {"torch", "ByteStorage", U8, false},
    {"torch", "BoolStorage", U8, false},
    {"torch", "CharStorage", UNSUPPORTED, false},
    {"torch", "ShortStorage", UNSUPPORTED, false},
    {"torch", "ComplexFloatStorage", UNSUPPORTED, false},
    {"torch", "ComplexDoubleStorage", UNSUPPORTED, false},
    {"torch", "Size", SKIPPED, false},
    {"torch", "device", SKIPPED, false},
    {"torch", "float32", SKIPPED, false},
    {"torch", "float16", SKIPPED, false},
    {"torch", "bfloat16", SKIPPED, false},
    {"argparse", "Namespace", SKIPPED, false},
    {"_codecs", "encode", SKIPPED, false},
    {"numpy", "dtype", SKIPPED, false},
    {"numpy.core.multiarray", "scalar", SKIPPED, false},
    {"numpy._core.multiarray", "scalar", SKIPPED, false},
    {0},
};

static int role_of(const struct pickle_value *value) { return globals[value->global].role; }

/* Where a state_dict usually is in a training checkpoint: averaged weights first, as with our own. */
static const char *const wrappers[] = {"state_dict_ema", "model_ema", "state_dict", "model",
                                       "network_weights"};

/* torch.optim.swa_utils.AveragedModel counts its updates under this name. */
#define AVERAGED_COUNTER "n_averaged"

/* A tensor may repeat elements of its storage (stride 0), up to as many. */
#define REPEATED_MAX (1 << 24)

/* ---- Tensors of the pickle ---- */

struct reading {
    struct torch_file *file;
    const struct pickle *pickle;
    const char *root;            /* of the archive: "archive/" */
};

/* The tensor that a parameter is made of, or the value itself. */
static int unwrap(const struct pickle *pickle, int value)
{
    const struct pickle_value *is = &pickle->values[value];
    if (is->kind != PICKLE_CALL || role_of(is) != PARAMETER) return value;
    int tensor = pickle_item(pickle, is->first, 0, PICKLE_CALL);
    return tensor < 0 ? value : tensor;
}

static bool is_tensor(const struct pickle *pickle, int value)
{
    const struct pickle_value *is = &pickle->values[unwrap(pickle, value)];
    return is->kind == PICKLE_CALL && (role_of(is) == TENSOR || role_of(is) == PARAMETER);
}

static bool integer(const struct pickle *pickle, int tuple, int item, int64_t *value)
{
    int found = pickle_item(pickle, tuple, item, PICKLE_INTEGER);
    if (found >= 0) *value = pickle->values[found].integer;
    return found >= 0 && *value >= 0;
}

/* The file of a storage: ('storage', type, key, location, elements). */
static bool find_storage(const struct reading *reading, int persistent, struct torch_entry *entry,
                         int64_t *elements, struct reason *reason)
{
    const struct pickle *pickle = reading->pickle;
    int identity = pickle->values[persistent].first, word = pickle_item(pickle, identity, 0, PICKLE_TEXT);
    int type = pickle_item(pickle, identity, 1, PICKLE_GLOBAL);
    int key = pickle_item(pickle, identity, 2, PICKLE_TEXT);
    if (word < 0 || !pickle_is(pickle, word, "storage") || type < 0 || key < 0 ||
        !integer(pickle, identity, 4, elements))
        return because(reason, "has a damaged storage");
    int role = role_of(&pickle->values[type]);
    if (role >= DTYPE_COUNT)
        return because(reason, "has the type torch.%s, which is not supported",
                       globals[pickle->values[type].global].name);
    entry->dtype = (enum dtype)role;
    const struct pickle_value *text = &pickle->values[key];
    char *name = text_format("%sdata/%.*s", reading->root, text->count, pickle->bytes + text->first);
    entry->storage = zip_find(&reading->file->zip, name);
    free(name);
    if (entry->storage < 0) return because(reason, "has a storage that is not in the file");
    int64_t bytes = reading->file->zip.members[entry->storage].bytes;
    return *elements <= bytes / (int64_t)dtype_bytes(entry->dtype) ||
           because(reason, "has a storage of %" PRId64 " bytes, too few for %" PRId64 " elements", bytes,
                   *elements);
}

static bool read_shape(const struct pickle *pickle, int arguments, struct torch_entry *entry,
                       struct reason *reason)
{
    int size = pickle_item(pickle, arguments, 2, PICKLE_TUPLE);
    int stride = pickle_item(pickle, arguments, 3, PICKLE_TUPLE);
    if (size < 0 || stride < 0 || pickle->values[size].count != pickle->values[stride].count ||
        !integer(pickle, arguments, 1, &entry->offset))
        return because(reason, "has a damaged shape");
    int rank = pickle->values[size].count;
    if (rank > 4) return because(reason, "has %d dimensions; at most 4 can be used", rank);
    entry->shape = (struct shape){.rank = rank, .dim = {1, 1, 1, 1}};
    for (int i = 0; i < rank; i++)
        if (!integer(pickle, size, i, &entry->shape.dim[i]) ||
            !integer(pickle, stride, i, &entry->stride[i]))
            return because(reason, "has a damaged shape");
    return true;
}

/* Every element lies in the storage, and there are not absurdly many of them. */
static bool check_bounds(const struct torch_entry *entry, int64_t elements, struct reason *reason)
{
    int64_t last = entry->offset, count = 1, reach;
    bool empty = false, fits = true;
    for (int i = 0; i < entry->shape.rank; i++) {
        empty = empty || entry->shape.dim[i] == 0;
        fits = fits && !__builtin_mul_overflow(count, entry->shape.dim[i], &count) &&
               !__builtin_mul_overflow(entry->shape.dim[i] - 1, entry->stride[i], &reach) &&
               !__builtin_add_overflow(last, reach, &last);
    }
    if (!fits || (!empty && last >= elements)) return because(reason, "lies outside of its storage");
    return count <= elements || count <= REPEATED_MAX ||
           because(reason, "has %" PRId64 " elements, but its storage %" PRId64, count, elements);
}

static bool read_tensor(const struct reading *reading, int value, struct torch_entry *entry,
                        struct reason *reason)
{
    const struct pickle *pickle = reading->pickle;
    const struct pickle_value *call = &pickle->values[unwrap(pickle, value)];
    int64_t elements = 0;
    if (role_of(call) != TENSOR) return because(reason, "is a damaged parameter");
    int storage = pickle_item(pickle, call->first, 0, PICKLE_PERSISTENT);
    if (storage < 0) return because(reason, "has no storage");
    return read_shape(pickle, call->first, entry, reason) &&
           find_storage(reading, storage, entry, &elements, reason) &&
           check_bounds(entry, elements, reason);
}

/* ---- Dictionaries of the pickle ---- */

static int count_tensors(const struct pickle *pickle, int dict)
{
    int count = 0;
    for (int i = pickle->values[dict].first; i >= 0; i = pickle->pairs[i].next)
        count += pickle->values[pickle->pairs[i].key].kind == PICKLE_TEXT &&
                 is_tensor(pickle, pickle->pairs[i].value);
    return count;
}

static bool choose_dict(const struct pickle *pickle, int *dict, const char **wrapper, struct reason *reason)
{
    *dict = pickle->result;
    *wrapper = NULL;
    if (is_tensor(pickle, *dict)) return because(reason, "contains one tensor, not a state_dict");
    if (pickle->values[*dict].kind != PICKLE_DICT)
        return because(reason, "does not contain a state_dict, which is a dictionary of tensors");
    if (count_tensors(pickle, *dict) > 0) return true;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        int inner = pickle_get(pickle, pickle->result, wrappers[i]);
        if (inner < 0 || pickle->values[inner].kind != PICKLE_DICT || !count_tensors(pickle, inner)) continue;
        *dict = inner;
        *wrapper = wrappers[i];
        return true;
    }
    return because(reason, "has no tensors, neither directly nor under state_dict, model, state_dict_ema, "
                   "model_ema or network_weights");
}

static bool read_entry(const struct reading *reading, const struct pickle_pair *pair, struct reason *reason)
{
    const struct pickle *pickle = reading->pickle;
    const struct pickle_value *key = &pickle->values[pair->key];
    struct torch_entry *entry = &reading->file->entries[reading->file->count];
    struct reason why;
    if (key->kind != PICKLE_TEXT || !is_tensor(pickle, pair->value) ||
        pickle_is(pickle, pair->key, AVERAGED_COUNTER))
        return true;
    if (memchr(pickle->bytes + key->first, '\0', (size_t)key->count))
        return because(reason, "has a tensor with a damaged name");
    entry->name = text_format("%.*s", key->count, pickle->bytes + key->first);
    reading->file->count++;
    return read_tensor(reading, pair->value, entry, &why) ||
           because(reason, "tensor '%.100s' %.120s", entry->name, why.text);
}

static bool read_dict(const struct reading *reading, int dict, struct reason *reason)
{
    struct torch_file *file = reading->file;
    const struct pickle *pickle = reading->pickle;
    file->entries = memory_new((size_t)count_tensors(pickle, dict) + 1, sizeof *file->entries);
    for (int i = pickle->values[dict].first; i >= 0; i = pickle->pairs[i].next)
        if (!read_entry(reading, &pickle->pairs[i], reason)) return false;
    if (file->count > 0) qsort(file->entries, (size_t)file->count, sizeof *file->entries, text_compare);
    for (int i = 1; i < file->count; i++)
        if (strcmp(file->entries[i].name, file->entries[i - 1].name) == 0)
            return because(reason, "has two tensors '%.100s'", file->entries[i].name);
    return true;
}

/* ---- The archive ---- */

/* Storages are written in the byte order of the machine that wrote them. */
static bool check_order(const struct torch_file *file, const char *root, struct reason *reason)
{
    char *name = text_format("%sbyteorder", root), order[6];
    int member = zip_find(&file->zip, name);
    free(name);
    if (member < 0) return true;                       /* before PyTorch 2.1 */
    if (file->zip.members[member].bytes != sizeof order)
        return because(reason, "was written by a machine of another byte order");
    return zip_read(&file->zip, member, 0, order, sizeof order, reason) &&
           (memcmp(order, "little", sizeof order) == 0 || because(reason, "has a damaged byte order"));
}

static bool read_pickle(struct torch_file *file, int member, const char *root, struct reason *reason)
{
    int64_t bytes = file->zip.members[member].bytes;
    if (bytes > PICKLE_BYTES_MAX)
        return because(reason, "has a pickle of %" PRId64 " bytes; at most %d can be read", bytes,
                       PICKLE_BYTES_MAX);
    char *content = memory_try((size_t)bytes + 1, 1);
    if (!content) return because(reason, "needs more memory than is available");
    struct pickle pickle = {0};
    int dict = 0;
    const struct reading reading = {file, &pickle, root};
    bool good = zip_read(&file->zip, member, 0, content, bytes, reason) &&
                pickle_read(content, (size_t)bytes, globals, &pickle, reason) &&
                choose_dict(&pickle, &dict, &file->wrapper, reason) && read_dict(&reading, dict, reason);
    pickle_free(&pickle);
    free(content);
    return good;
}

/* The pickle is NAME/data.pkl in an archive that is called NAME.pt. */
static int find_pickle(const struct zip *zip)
{
    for (int i = 0; i < zip->count; i++) {
        const char *slash = strchr(zip->members[i].name, '/');
        if (slash && strcmp(slash, "/data.pkl") == 0) return i;
    }
    return zip_find(zip, "data.pkl");
}

static bool read_archive(struct torch_file *file, struct reason *reason)
{
    int member = find_pickle(&file->zip);
    if (member < 0) return because(reason, "is a zip archive, but not one of torch.save: it has no data.pkl");
    const char *name = file->zip.members[member].name;
    char *root = text_format("%.*s", (int)(strlen(name) - strlen("data.pkl")), name);
    char *constants = text_format("%sconstants.pkl", root);
    bool script = zip_find(&file->zip, constants) >= 0;
    free(constants);
    bool good = (!script || because(reason, "is a TorchScript program: save model.state_dict() instead")) &&
                check_order(file, root, reason) && read_pickle(file, member, root, reason);
    free(root);
    return good;
}

static bool open_archive(struct torch_file *file, struct reason *reason)
{
    struct reason why;
    struct stat status;
    char head[FILE_KIND_BYTES];
    file->file = directory_file(&directory_working, file->path, O_RDONLY, &why);
    if (file->file < 0) {
        because(reason, "cannot be opened: %s", why.text);
        reason->error = why.error;
        return false;
    }
    ssize_t got = file_read(file->file, head, sizeof head, 0);
    if (got < 0 || fstat(file->file, &status) != 0) return because_errno(reason, "cannot be read");
    /* Before PyTorch 1.6 files were pickles, one after another, and before 0.1.10 tar archives. */
    enum kind_of_file kind = file_kind(head, (size_t)got, (uint64_t)status.st_size).kind;
    if (kind == FILE_TORCH_OLD || kind == FILE_TAR)
        return because(reason, "is in PyTorch's format of before version 1.6; "
                       "torch.save(torch.load(\"OLD.pth\"), \"NEW.pth\") in Python writes today's");
    if (kind != FILE_TORCH) return because(reason, "is a pickle, but not a file of torch.save");
    return zip_open(file->file, status.st_size, &file->zip, reason) && read_archive(file, reason);
}

bool torch_file_open(const char *path, struct torch_file *file, struct reason *reason)
{
    struct torch_file opened = {.path = text_copy(path), .file = -1};
    if (!open_archive(&opened, reason)) {
        torch_file_close(&opened);
        return false;
    }
    *file = opened;
    return true;
}

void torch_file_close(struct torch_file *file)
{
    if (!file->path) return;
    if (file->file >= 0) close(file->file);
    zip_close(&file->zip);
    for (int i = 0; i < file->count; i++) free(file->entries[i].name);
    free(file->entries);
    free(file->path);
    *file = (struct torch_file){.file = -1};
}

/* ---- Elements ---- */

static bool is_contiguous(const struct torch_entry *entry)
{
    int64_t expected = 1;
    for (int i = entry->shape.rank - 1; i >= 0; i--) {
        if (entry->shape.dim[i] != 1 && entry->stride[i] != expected) return false;
        expected *= entry->shape.dim[i];
    }
    return true;
}

/* Elements from the first to the last in the storage. */
static int64_t extent_of(const struct torch_entry *entry)
{
    int64_t last = 0;
    for (int i = 0; i < entry->shape.rank; i++) last += (entry->shape.dim[i] - 1) * entry->stride[i];
    return last + 1;
}

static void gather(const struct torch_entry *entry, const char *from, char *to)
{
    size_t bytes = dtype_bytes(entry->dtype);
    int64_t at[4] = {0}, count = shape_count(entry->shape), place = 0;
    for (int64_t i = 0; i < count; i++, to += bytes) {
        memcpy(to, from + (size_t)place * bytes, bytes);
        for (int d = entry->shape.rank - 1; d >= 0; d--) {
            place += entry->stride[d];
            if (++at[d] < entry->shape.dim[d]) break;
            place -= entry->stride[d] * at[d];
            at[d] = 0;
        }
    }
}

bool torch_file_read(const struct torch_file *file, int entry, void *data, struct reason *reason)
{
    const struct torch_entry *from = &file->entries[entry];
    int64_t bytes = (int64_t)dtype_bytes(from->dtype), count = shape_count(from->shape);
    int64_t at = from->offset * bytes;
    struct reason why;
    if (count == 0) return true;
    if (is_contiguous(from))
        return zip_read(&file->zip, from->storage, at, data, count * bytes, &why) ||
               because(reason, "tensor '%.80s': %.120s", from->name, why.text);
    int64_t extent = extent_of(from) * bytes;
    char *region = memory_try((size_t)extent, 1);
    if (!region) return because(reason, "needs more memory than is available");
    bool good = zip_read(&file->zip, from->storage, at, region, extent, &why) ||
                because(reason, "tensor '%.80s': %.120s", from->name, why.text);
    if (good) gather(from, region, data);
    free(region);
    return good;
}
