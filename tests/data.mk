DATA_CASE = tests/data_case.c tests/data_case.h tests/files.c tests/files.h

check_PROGRAMS += \
	tests/test_augment \
	tests/test_formats \
	tests/test_image \
	tests/test_loader

tests_test_augment_SOURCES = tests/test_augment.c
tests_test_augment_LDADD = libdata.a libbase.a -lcmocka
tests_test_formats_SOURCES = tests/test_formats.c $(DATA_CASE)
tests_test_formats_LDADD = libdata.a libbase.a -lcmocka
tests_test_image_SOURCES = tests/test_image.c $(DATA_CASE)
tests_test_image_LDADD = libdata.a libbase.a -lcmocka
tests_test_loader_SOURCES = tests/test_loader.c $(DATA_CASE)
tests_test_loader_LDADD = libdata.a libbase.a -lcmocka

noinst_PROGRAMS += tests/bench_loader
tests_bench_loader_SOURCES = tests/bench_loader.c
tests_bench_loader_LDADD = libdata.a libbase.a

check_PROGRAMS += tests/test_partial_decode
tests_test_partial_decode_SOURCES = tests/test_partial_decode.c $(DATA_CASE)
tests_test_partial_decode_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_orientation
tests_test_orientation_SOURCES = tests/test_orientation.c $(DATA_CASE)
tests_test_orientation_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_policy
tests_test_policy_SOURCES = tests/test_policy.c
tests_test_policy_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_mix
tests_test_mix_SOURCES = tests/test_mix.c
tests_test_mix_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_packed
tests_test_packed_SOURCES = tests/test_packed.c $(DATA_CASE)
tests_test_packed_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_listing
tests_test_listing_SOURCES = tests/test_listing.c $(DATA_CASE)
tests_test_listing_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_sampler
tests_test_sampler_SOURCES = tests/test_sampler.c
tests_test_sampler_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_jpeg_plain
tests_test_jpeg_plain_SOURCES = tests/test_jpeg_plain.c $(DATA_CASE)
tests_test_jpeg_plain_LDADD = libdata.a libbase.a -lcmocka

# Once with the library that the build has, and once with zlib, which other builds have.
check_PROGRAMS += tests/test_deflated tests/test_deflated_zlib
tests_test_deflated_SOURCES = tests/test_deflated.c
tests_test_deflated_LDADD = libbase.a -lcmocka
tests_test_deflated_zlib_SOURCES = tests/test_deflated.c src/base/deflated_zlib.c src/base/deflated.h
tests_test_deflated_zlib_LDADD = libbase.a -lcmocka

check_PROGRAMS += tests/test_dataset_identity
tests_test_dataset_identity_SOURCES = tests/test_dataset_identity.c
tests_test_dataset_identity_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_csv
tests_test_csv_SOURCES = tests/test_csv.c tests/caught.h tests/files.c tests/files.h
tests_test_csv_LDADD = libdata.a libbase.a -lcmocka

check_PROGRAMS += tests/test_split
tests_test_split_SOURCES = tests/test_split.c
tests_test_split_LDADD = libdata.a libbase.a -lm -lcmocka

check_PROGRAMS += tests/test_targets
tests_test_targets_SOURCES = tests/test_targets.c
tests_test_targets_LDADD = libdata.a libbase.a -lcmocka

EXTRA_DIST += tests/test_webp.c
if HAVE_LIBWEBP
check_PROGRAMS += tests/test_webp
tests_test_webp_SOURCES = tests/test_webp.c
tests_test_webp_LDADD = libdata.a libbase.a -lcmocka
endif
