#include "file_kind.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Bytes from `at` on that no other kind has there. */
static const struct signature {
    size_t at, count;
    const char *bytes;
    struct file_kind kind;
} signatures[] = {
    {0, 8, "\x89PNG\r\n\x1a\n", {FILE_PNG, "PNG"}},
    {0, 3, "\xff\xd8\xff", {FILE_JPEG, "JPEG"}},
    {0, 7, "AMPPACK", {FILE_PACKED, "a packed data set"}},
    {0, 4, "PK\3\4", {FILE_TORCH, "a zip archive"}},
    {4, 7, "ftyphei", {FILE_IMAGE, "HEIC"}},
    {4, 7, "ftyphev", {FILE_IMAGE, "HEIC"}},
    {4, 8, "ftypmif1", {FILE_IMAGE, "HEIC"}},
    {4, 8, "ftypmsf1", {FILE_IMAGE, "HEIC"}},
    {4, 7, "ftypavi", {FILE_IMAGE, "AVIF"}},
    {4, 8, "ftypcrx ", {FILE_IMAGE, "a camera's raw format"}},
    {0, 4, "GIF8", {FILE_IMAGE, "GIF"}},
    {0, 4, "II*\0", {FILE_TIFF, "TIFF"}},
    {0, 4, "MM\0*", {FILE_TIFF, "TIFF"}},
    {0, 4, "II+\0", {FILE_TIFF, "TIFF"}},
    {0, 4, "MM\0+", {FILE_TIFF, "TIFF"}},
    {0, 4, "8BPS", {FILE_IMAGE, "Photoshop"}},
    {4, 8, "JXL \r\n\x87\n", {FILE_IMAGE, "JPEG XL"}},
    {4, 8, "jP  \r\n\x87\n", {FILE_IMAGE, "JPEG 2000"}},
    {0, 4, "\xff\x4f\xff\x51", {FILE_IMAGE, "JPEG 2000"}},
    {0, 4, "qoif", {FILE_IMAGE, "QOI"}},
    {0, 4, "v/1\x01", {FILE_IMAGE, "OpenEXR"}},
    {0, 8, "\x89HDF\r\n\x1a\n", {FILE_OTHER, "HDF5"}},
    {0, 6, "\x93NUMPY", {FILE_OTHER, "NumPy's format"}},
    {0, 4, "GGUF", {FILE_OTHER, "GGUF"}},
    {4, 4, "TFL3", {FILE_OTHER, "TensorFlow Lite"}},
    {0, 3, "\x1f\x8b\x08", {FILE_OTHER, "a gzip file"}},
    {0, 4, "\x28\xb5\x2f\xfd", {FILE_OTHER, "a Zstandard file"}},
    {0, 6, "\xfd" "7zXZ\0", {FILE_OTHER, "an xz file"}},
    {0, 4, "%PDF", {FILE_OTHER, "PDF"}},
    {0, 4, "\x7f" "ELF", {FILE_OTHER, "a program"}},
    {0, 34, "version https://git-lfs.github.com", {FILE_OTHER, "a Git LFS pointer"}},
};

static const struct file_kind unknown = {FILE_UNKNOWN, NULL};

/* A safetensors file begins with the length of its header, 8 bytes of which any two may be the signature of
 * something else, and with the header's brace. No other kind has that brace behind a length that the file
 * has room for: it would be zip's method, gzip's flags, a pickle's opcode behind three zero bytes. */
static bool is_safetensors(const uint8_t *bytes, size_t count, uint64_t size)
{
    if (count < 9 || bytes[8] != '{') return false;
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    return length >= 2 && length < size && size - length >= 8;
}

/* Its file may have been cut off. */
static bool is_cut_safetensors(const uint8_t *bytes, size_t count)
{
    return count >= 9 && bytes[8] == '{' && memcmp(bytes + 5, "\0\0", 3) == 0;
}

/* Pickles of protocols 2 to 5. */
static struct file_kind pickle_kind(const uint8_t *bytes, size_t count)
{
    static const char magic[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    if (count < 2 || bytes[0] != 0x80 || bytes[1] < 2 || bytes[1] > 5) return unknown;
    if (count >= 2 + sizeof magic - 1 && memcmp(bytes + 2, magic, sizeof magic - 1) == 0)
        return (struct file_kind){FILE_TORCH_OLD, "in PyTorch's format of before version 1.6"};
    return (struct file_kind){FILE_PICKLE, "a pickle"};
}

/* The magic of two bytes alone also begins texts; white space follows that of a PNM (PPM, PGM), and a BMP
 * has four zero bytes after its size. */
static const char *short_image(const uint8_t *bytes, size_t count)
{
    bool pnm = count >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
               (bytes[2] == '\n' || bytes[2] == ' ');
    if (pnm) return "PNM";
    if (count >= 2 && memcmp(bytes, "\xff\x0a", 2) == 0) return "JPEG XL";
    bool bmp = count >= 10 && memcmp(bytes, "BM", 2) == 0 && memcmp(bytes + 6, "\0\0\0\0", 4) == 0;
    return bmp ? "BMP" : NULL;
}

/* An ONNX model: ir_version (field 1), then producer_name (2), a domain (4) or the graph (7), as protobuf
 * writes fields in their order. */
static bool is_onnx(const uint8_t *bytes, size_t count)
{
    return count >= 4 && bytes[0] == 0x08 && bytes[1] >= 3 && bytes[1] < 32 && bytes[2] != 0 &&
           strchr("\x12\x1a\x22\x3a\x42", bytes[2]);
}

static const char *text_kind(const uint8_t *bytes, size_t count)
{
    size_t blanks = 0;
    while (blanks < count && isspace(bytes[blanks])) blanks++;
    if (blanks < count && bytes[blanks] == '<') return "HTML or XML";
    if (blanks < count && bytes[blanks] == '{') return "JSON";
    for (size_t i = 0; i < count; i++)
        if (iscntrl(bytes[i]) && !isspace(bytes[i])) return NULL;
    return count >= 16 ? "text" : NULL;
}

struct file_kind file_kind(const void *from, size_t count, uint64_t size)
{
    const uint8_t *bytes = from;
    const char *name;
    if (is_safetensors(bytes, count, size)) return (struct file_kind){FILE_SAFETENSORS, "safetensors"};
    if (count >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return (struct file_kind){FILE_WEBP, "WebP"};
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const struct signature *is = &signatures[i];
        if (count >= is->at + is->count && memcmp(bytes + is->at, is->bytes, is->count) == 0) return is->kind;
    }
    if (is_cut_safetensors(bytes, count)) return (struct file_kind){FILE_SAFETENSORS, "safetensors"};
    struct file_kind pickle = pickle_kind(bytes, count);
    if (pickle.name) return pickle;
    if (count >= 262 && memcmp(bytes + 257, "ustar", 5) == 0)
        return (struct file_kind){FILE_TAR, "a tar archive"};
    if ((name = short_image(bytes, count))) return (struct file_kind){FILE_IMAGE, name};
    if (is_onnx(bytes, count)) return (struct file_kind){FILE_OTHER, "ONNX"};
    return (name = text_kind(bytes, count)) ? (struct file_kind){FILE_OTHER, name} : unknown;
}
