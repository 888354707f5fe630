check_PROGRAMS += tests/data/test_augment tests/data/test_formats tests/data/test_image \
	tests/data/test_loader tests/data/test_partial_decode tests/data/test_orientation tests/data/test_policy \
	tests/data/test_mix tests/data/test_packed tests/data/test_listing tests/data/test_sampler \
	tests/data/test_jpeg_plain tests/data/test_deflated tests/data/test_deflated_zlib \
	tests/data/test_dataset_identity tests/data/test_csv tests/data/test_split tests/data/test_targets \
	tests/data/test_mask tests/data/test_masks tests/data/test_augment_mask tests/data/test_loader_masks
check_PROGRAMS += tests/data/test_intensity
noinst_PROGRAMS += tests/data/bench_loader
EXTRA_DIST += tests/data/test_webp.c tests/data/test_tiff.c tests/data/test_samples.sh tests/data/samples_peers.py

tests_data_test_augment_SOURCES = tests/data/test_augment.c
tests_data_test_augment_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_intensity_SOURCES = tests/data/test_intensity.c
tests_data_test_intensity_LDADD = libdata.a libbase.a -lm -lcmocka

tests_data_test_formats_SOURCES = tests/data/test_formats.c $(DATA_CASE)
tests_data_test_formats_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_image_SOURCES = tests/data/test_image.c $(DATA_CASE)
tests_data_test_image_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_loader_SOURCES = tests/data/test_loader.c $(DATA_CASE)
tests_data_test_loader_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_mask_SOURCES = tests/data/test_mask.c tests/support/caught.h $(DATA_CASE)
tests_data_test_mask_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_masks_SOURCES = tests/data/test_masks.c tests/support/caught.h $(DATA_CASE)
tests_data_test_masks_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_augment_mask_SOURCES = tests/data/test_augment_mask.c tests/support/rounds.h
tests_data_test_augment_mask_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_loader_masks_SOURCES = tests/data/test_loader_masks.c tests/support/caught.h $(DATA_CASE)
tests_data_test_loader_masks_LDADD = libdata.a libbase.a -lcmocka

tests_data_bench_loader_SOURCES = tests/data/bench_loader.c
tests_data_bench_loader_LDADD = libdata.a libbase.a

tests_data_test_partial_decode_SOURCES = tests/data/test_partial_decode.c $(DATA_CASE)
tests_data_test_partial_decode_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_orientation_SOURCES = tests/data/test_orientation.c $(DATA_CASE)
tests_data_test_orientation_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_policy_SOURCES = tests/data/test_policy.c
tests_data_test_policy_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_mix_SOURCES = tests/data/test_mix.c
tests_data_test_mix_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_packed_SOURCES = tests/data/test_packed.c $(DATA_CASE)
tests_data_test_packed_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_listing_SOURCES = tests/data/test_listing.c $(DATA_CASE)
tests_data_test_listing_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_sampler_SOURCES = tests/data/test_sampler.c
tests_data_test_sampler_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_jpeg_plain_SOURCES = tests/data/test_jpeg_plain.c $(DATA_CASE)
tests_data_test_jpeg_plain_LDADD = libdata.a libbase.a -lcmocka

# Once with the library that the build has, and once with zlib, which other builds have.
tests_data_test_deflated_SOURCES = tests/data/test_deflated.c
tests_data_test_deflated_LDADD = libbase.a -lcmocka

tests_data_test_deflated_zlib_SOURCES = tests/data/test_deflated.c src/base/deflated_zlib.c \
	src/base/deflated.h
tests_data_test_deflated_zlib_LDADD = libbase.a -lcmocka

tests_data_test_dataset_identity_SOURCES = tests/data/test_dataset_identity.c
tests_data_test_dataset_identity_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_csv_SOURCES = tests/data/test_csv.c tests/support/caught.h tests/support/files.c \
	tests/support/files.h
tests_data_test_csv_LDADD = libdata.a libbase.a -lcmocka

tests_data_test_split_SOURCES = tests/data/test_split.c
tests_data_test_split_LDADD = libdata.a libbase.a -lm -lcmocka

tests_data_test_targets_SOURCES = tests/data/test_targets.c
tests_data_test_targets_LDADD = libdata.a libbase.a -lcmocka

if HAVE_LIBWEBP
check_PROGRAMS += tests/data/test_webp
tests_data_test_webp_SOURCES = tests/data/test_webp.c
tests_data_test_webp_LDADD = libdata.a libbase.a -lcmocka
endif

if HAVE_LIBTIFF
check_PROGRAMS += tests/data/test_tiff
dist_check_SCRIPTS += tests/data/test_samples.sh
tests_data_test_tiff_SOURCES = tests/data/test_tiff.c
tests_data_test_tiff_LDADD = libdata.a libbase.a -lcmocka
endif
