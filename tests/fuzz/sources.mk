# Fuzz targets: tests/fuzz/fuzz_NAME.c is libFuzzer's; tests/fuzz/corpus/NAME/ are inputs that lead everywhere
# in the code, tests/fuzz/cases/NAME/ those that once were trouble. Every build tries both
# (test_fuzz.sh). To look for more: `make fuzz SECONDS=60 JOBS=2` (seconds for each target, targets at a
# time) in a build configured with --enable-fuzzing.
FUZZ_TARGETS = \
	tests/fuzz/fuzz_archive \
	tests/fuzz/fuzz_card \
	tests/fuzz/fuzz_checkpoint \
	tests/fuzz/fuzz_cifar \
	tests/fuzz/fuzz_csv \
	tests/fuzz/fuzz_digits \
	tests/fuzz/fuzz_entries \
	tests/fuzz/fuzz_idx \
	tests/fuzz/fuzz_ini \
	tests/fuzz/fuzz_jpeg \
	tests/fuzz/fuzz_listing \
	tests/fuzz/fuzz_mask \
	tests/fuzz/fuzz_metadata \
	tests/fuzz/fuzz_metrics \
	tests/fuzz/fuzz_model \
	tests/fuzz/fuzz_packed \
	tests/fuzz/fuzz_png \
	tests/fuzz/fuzz_program \
	tests/fuzz/fuzz_report \
	tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_shards \
	tests/fuzz/fuzz_spans \
	tests/fuzz/fuzz_sweep \
	tests/fuzz/fuzz_tar \
	tests/fuzz/fuzz_tiff \
	tests/fuzz/fuzz_torch \
	tests/fuzz/fuzz_tuning \
	tests/fuzz/fuzz_webp

EXTRA_PROGRAMS = $(FUZZ_TARGETS)
check_DATA = $(FUZZ_TARGETS)
dist_check_SCRIPTS += tests/fuzz/test_fuzz.sh
EXTRA_DIST += tests/fuzz/run tests/fuzz/corpus tests/fuzz/cases
CLEANFILES += $(FUZZ_TARGETS)

FUZZ_MAIN = tests/fuzz/fuzz.c tests/fuzz/fuzz.h
if FUZZING
EXTRA_DIST += tests/fuzz/fuzz_main.c
else
FUZZ_MAIN += tests/fuzz/fuzz_main.c
endif
FUZZ_IMAGES = $(FUZZ_MAIN) tests/fuzz/fuzz_images.c tests/fuzz/fuzz_images.h
FUZZ_PACKED = $(FUZZ_IMAGES) tests/fuzz/fuzz_repair.c tests/fuzz/fuzz_repair.h
FUZZ_NETWORK = $(FUZZ_MAIN) tests/fuzz/fuzz_network.c tests/fuzz/fuzz_network.h

tests_fuzz_fuzz_archive_SOURCES = tests/fuzz/fuzz_archive.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_archive_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_card_SOURCES = tests/fuzz/fuzz_card.c $(FUZZ_MAIN)
tests_fuzz_fuzz_card_LDADD = $(LDADD) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_checkpoint_SOURCES = tests/fuzz/fuzz_checkpoint.c $(FUZZ_NETWORK)
tests_fuzz_fuzz_checkpoint_LDADD = $(LDADD) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_cifar_SOURCES = tests/fuzz/fuzz_cifar.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_cifar_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_csv_SOURCES = tests/fuzz/fuzz_csv.c $(FUZZ_MAIN)
tests_fuzz_fuzz_csv_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_digits_SOURCES = tests/fuzz/fuzz_digits.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_digits_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_entries_SOURCES = tests/fuzz/fuzz_entries.c $(FUZZ_MAIN)
tests_fuzz_fuzz_entries_LDADD = libconf.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_idx_SOURCES = tests/fuzz/fuzz_idx.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_idx_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_ini_SOURCES = tests/fuzz/fuzz_ini.c $(FUZZ_MAIN)
tests_fuzz_fuzz_ini_LDADD = libconf.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_jpeg_SOURCES = tests/fuzz/fuzz_jpeg.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_jpeg_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_listing_SOURCES = tests/fuzz/fuzz_listing.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_listing_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_mask_SOURCES = tests/fuzz/fuzz_mask.c $(FUZZ_MAIN)
tests_fuzz_fuzz_mask_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_metadata_SOURCES = tests/fuzz/fuzz_metadata.c $(FUZZ_NETWORK)
tests_fuzz_fuzz_metadata_LDADD = $(LDADD) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_metrics_SOURCES = tests/fuzz/fuzz_metrics.c $(FUZZ_MAIN)
tests_fuzz_fuzz_metrics_LDADD = libtrain.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_model_SOURCES = tests/fuzz/fuzz_model.c $(FUZZ_MAIN)
tests_fuzz_fuzz_model_LDADD = $(GRAPH_LIBS) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_packed_SOURCES = tests/fuzz/fuzz_packed.c $(FUZZ_PACKED)
tests_fuzz_fuzz_packed_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_png_SOURCES = tests/fuzz/fuzz_png.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_png_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_program_SOURCES = tests/fuzz/fuzz_program.c $(FUZZ_MAIN)
tests_fuzz_fuzz_program_LDADD = $(GRAPH_LIBS) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_report_SOURCES = tests/fuzz/fuzz_report.c $(FUZZ_MAIN)
tests_fuzz_fuzz_report_LDADD = $(LDADD) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(FUZZ_NETWORK)
tests_fuzz_fuzz_safetensors_LDADD = $(LDADD) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_shards_SOURCES = tests/fuzz/fuzz_shards.c $(FUZZ_PACKED)
tests_fuzz_fuzz_shards_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_spans_SOURCES = tests/fuzz/fuzz_spans.c $(FUZZ_MAIN)
tests_fuzz_fuzz_spans_LDADD = liballoc.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_sweep_SOURCES = tests/fuzz/fuzz_sweep.c $(FUZZ_MAIN)
tests_fuzz_fuzz_sweep_LDADD = $(LDADD) $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_tar_SOURCES = tests/fuzz/fuzz_tar.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_tar_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_tiff_SOURCES = tests/fuzz/fuzz_tiff.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_tiff_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_torch_SOURCES = tests/fuzz/fuzz_torch.c tests/support/torch_case.c \
	tests/support/torch_case.h $(FUZZ_MAIN)
tests_fuzz_fuzz_torch_LDADD = libformat.a libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_tuning_SOURCES = tests/fuzz/fuzz_tuning.c src/device/cuda_tuning.c $(FUZZ_MAIN)
tests_fuzz_fuzz_tuning_LDADD = libbase.a $(FUZZ_LDFLAGS)

tests_fuzz_fuzz_webp_SOURCES = tests/fuzz/fuzz_webp.c $(FUZZ_IMAGES)
tests_fuzz_fuzz_webp_LDADD = libdata.a libbase.a $(FUZZ_LDFLAGS)

SECONDS = 60
JOBS = 1

fuzz: $(FUZZ_TARGETS)
	@JOBS=$(JOBS) $(SHELL) $(srcdir)/tests/fuzz/run $(srcdir) $(SECONDS) $(FUZZ_TARGETS)

# fuzz-kit/: targets, corpora and libraries for a machine that has nothing; there, in fuzz-kit/,
# `JOBS=16 sh tests/fuzz/run . 1800 tests/fuzz/fuzz_*`.
fuzz-kit: $(FUZZ_TARGETS)
	rm -rf fuzz-kit
	$(MKDIR_P) fuzz-kit/tests/fuzz fuzz-kit/lib
	cp -R $(srcdir)/tests/fuzz/run $(srcdir)/tests/fuzz/corpus $(srcdir)/tests/fuzz/cases fuzz-kit/tests/fuzz
	for target in $(FUZZ_TARGETS); do objcopy --strip-debug $$target fuzz-kit/$$target || exit 1; done
	ldd $(FUZZ_TARGETS) | awk '$$2 == "=>" && $$1 !~ /^lib(c|m|rt|dl|pthread)\./ { print $$3 }' | sort -u | \
		xargs -I FILE cp -L FILE fuzz-kit/lib
.PHONY: fuzz fuzz-kit
