libdata_a_SOURCES = \
	data/augment.c \
	data/augment.h \
	data/by_class.c \
	data/by_class.h \
	data/colour.c \
	data/colour.h \
	data/dataset.c \
	data/dataset_classes.c \
	data/dataset.h \
	data/detect.c \
	data/detect.h \
	data/gpu_preprocessing.h \
	data/format_cifar.c \
	data/format_digits.c \
	data/format_folder.c \
	data/format_mnist.c \
	data/format_synthetic.c \
	data/format_packed.c \
	data/formats.c \
	data/image.c \
	data/image.h \
	data/image_cache.c \
	data/image_cache.h \
	data/image_decode.c \
	data/image_jpeg.c \
	data/image_jpeg_write.c \
	data/image_png.c \
	data/image_png_plain.c \
	data/image_png_write.c \
	data/jpeg_plain.c \
	data/jpeg_plain.h \
	data/listing.c \
	data/listing.h \
	data/listing_index.c \
	data/loader.c \
	data/loader.h \
	data/loader_batch.c \
	data/loader_parts.h \
	data/loader_sample.c \
	data/loader_watch.c \
	data/mix.c \
	data/mix.h \
	data/orientation.c \
	data/orientation.h \
	data/packed.h \
	data/packed_read.c \
	data/packed_write.c \
	data/policy.c \
	data/policy.h \
	data/resample.h \
	data/resize.c \
	data/resize.h \
	data/batch_packing.c \
	data/batch_packing.h \
	data/sampler.c \
	data/sampler.h \
	data/shard.h \
	data/shard_set.c \
	data/tar.c \
	data/targets.c \
	data/targets.h \
	data/tar.h \
	data/deferred_jpeg.c \
	data/deferred_jpeg.h \
	data/warp.c \
	data/warp.h \
	data/webdataset.c \
	data/gzip_file.c \
	data/gzip_file.h

if HAVE_LIBWEBP
libdata_a_SOURCES += data/image_webp.c
else
libdata_a_SOURCES += data/image_webp_none.c
endif
