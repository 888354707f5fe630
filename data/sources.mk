libdata_a_SOURCES = \
	data/image/image.c \
	data/image/image.h \
	data/image/image_channels.c \
	data/image/image_decode.c \
	data/image/image_extent.c \
	data/image/image_jpeg.c \
	data/image/image_jpeg_write.c \
	data/image/image_png.c \
	data/image/image_png_plain.c \
	data/image/image_png_write.c \
	data/image/jpeg_plain.c \
	data/image/jpeg_plain.h \
	data/image/mask.c \
	data/image/mask.h \
	data/image/mask_classes.c \
	data/image/mask_classes.h \
	data/image/mask_classes_text.c \
	data/image/mask_palette.c \
	data/image/mask_palette.h \
	data/image/orientation.c \
	data/image/orientation.h \
	data/augment/augment.c \
	data/augment/augment.h \
	data/augment/augment_deep.c \
	data/augment/augment_deep.h \
	data/augment/augment_mask.c \
	data/augment/colour.c \
	data/augment/colour.h \
	data/augment/cut.h \
	data/augment/gpu_preprocessing.h \
	data/augment/heat_map.c \
	data/augment/heat_map.h \
	data/augment/mix.c \
	data/augment/mix.h \
	data/augment/policy.c \
	data/augment/policy.h \
	data/augment/resample.h \
	data/augment/resize.c \
	data/augment/resize.h \
	data/augment/resize_bicubic.c \
	data/augment/resize_parts.h \
	data/augment/warp.c \
	data/augment/warp.h \
	data/dataset/by_class.c \
	data/dataset/by_class.h \
	data/dataset/dataset.c \
	data/dataset/dataset.h \
	data/dataset/dataset_classes.c \
	data/dataset/dataset_identity.c \
	data/dataset/dataset_identity.h \
	data/dataset/dataset_identity_compare.c \
	data/dataset/dataset_identity_text.c \
	data/dataset/detect.c \
	data/dataset/detect.h \
	data/dataset/image_list.c \
	data/dataset/image_list.h \
	data/dataset/masks.c \
	data/dataset/masks.h \
	data/dataset/split.c \
	data/dataset/split.h \
	data/dataset/split_groups.c \
	data/dataset/split_groups.h \
	data/dataset/split_holdout.h \
	data/dataset/target.h \
	data/formats/csv_table.c \
	data/formats/csv_table.h \
	data/formats/format_cifar.c \
	data/formats/format_csv.c \
	data/formats/format_digits.c \
	data/formats/format_folder.c \
	data/formats/format_mnist.c \
	data/formats/format_packed.c \
	data/formats/format_synthetic.c \
	data/formats/formats.c \
	data/formats/gzip_file.c \
	data/formats/gzip_file.h \
	data/formats/listing.c \
	data/formats/listing.h \
	data/formats/listing_index.c \
	data/formats/mask_pairs.c \
	data/formats/mask_pairs.h \
	data/formats/name_index.c \
	data/formats/name_index.h \
	data/formats/packed.h \
	data/formats/packed_read.c \
	data/formats/shard.c \
	data/formats/packed_write.c \
	data/formats/shard.h \
	data/formats/shard_set.c \
	data/formats/tar.c \
	data/formats/tar.h \
	data/formats/webdataset.c \
	data/loader/batch_packing.c \
	data/loader/batch_packing.h \
	data/loader/deferred_jpeg.c \
	data/loader/deferred_jpeg.h \
	data/loader/image_cache.c \
	data/loader/image_cache.h \
	data/loader/loader.c \
	data/loader/loader.h \
	data/loader/loader_batch.c \
	data/loader/loader_parts.h \
	data/loader/loader_sample.c \
	data/loader/loader_watch.c \
	data/loader/stall.c \
	data/loader/sampler.c \
	data/loader/sampler.h \
	data/loader/stall.h \
	data/loader/mask_targets.c \
	data/loader/mask_targets.h \
	data/loader/targets.c \
	data/loader/targets.h

if HAVE_LIBWEBP
libdata_a_SOURCES += data/image/image_webp.c
else
libdata_a_SOURCES += data/image/image_webp_none.c
endif

if HAVE_LIBTIFF
libdata_a_SOURCES += data/image/image_tiff.c
else
libdata_a_SOURCES += data/image/image_tiff_none.c
endif
