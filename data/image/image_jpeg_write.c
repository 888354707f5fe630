/* image_jpeg_write.c: writes JPEG by libjpeg-turbo. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "data/image/image.h"

/* All that changes before a longjmp is a member, never a local. */
struct writer {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    unsigned char *bytes;
    unsigned long count;
    struct reason *reason;
};

_Noreturn static void on_error(j_common_ptr jpeg)
{
    struct writer *writer = jpeg->client_data;
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    because(writer->reason, "JPEG: %s", message);
    longjmp(writer->out, 1);
}

static bool write_image(struct writer *writer, const struct image *image, int quality)
{
    struct jpeg_compress_struct *jpeg = &writer->jpeg;
    if (setjmp(writer->out)) return false;
    jpeg_create_compress(jpeg);
    jpeg->client_data = writer;
    jpeg_mem_dest(jpeg, &writer->bytes, &writer->count);
    jpeg->image_width = (JDIMENSION)image->w;
    jpeg->image_height = (JDIMENSION)image->h;
    jpeg->input_components = image->c;
    jpeg->in_color_space = image->c == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg->optimize_coding = TRUE;
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = image->pixels + (size_t)jpeg->next_scanline * (size_t)image->w * (size_t)image->c;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    return true;
}

bool image_encode_jpeg(const struct image *image, int quality, uint8_t **bytes, size_t *count,
                       struct reason *reason)
{
    struct writer writer = {.reason = reason};
    writer.jpeg.err = jpeg_std_error(&writer.errors);
    writer.jpeg.client_data = &writer;
    writer.errors.error_exit = on_error;
    bool good = write_image(&writer, image, quality);
    jpeg_destroy_compress(&writer.jpeg);
    if (good) {
        *bytes = writer.bytes;
        *count = writer.count;
    } else {
        free(writer.bytes);
    }
    return good;
}
