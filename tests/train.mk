check_PROGRAMS += tests/test_safetensors tests/test_schedule tests/test_records tests/test_checkpoint

tests_test_safetensors_SOURCES = tests/test_safetensors.c tests/caught.h $(REFUSE)
tests_test_safetensors_LDFLAGS = $(REFUSE_LINKED)
tests_test_safetensors_LDADD = libformat.a libbase.a -lcmocka

check_PROGRAMS += tests/test_torch_file
tests_test_torch_file_SOURCES = tests/test_torch_file.c tests/torch_case.c tests/torch_case.h $(REFUSE)
tests_test_torch_file_LDFLAGS = $(REFUSE_LINKED)
tests_test_torch_file_LDADD = libformat.a libbase.a -lcmocka

check_PROGRAMS += tests/test_pickle
tests_test_pickle_SOURCES = tests/test_pickle.c src/format/pickle.c
tests_test_pickle_CPPFLAGS = $(AM_CPPFLAGS) -DPICKLE_VALUES_MAX=64
tests_test_pickle_LDADD = libbase.a -lcmocka

tests_test_schedule_SOURCES = tests/test_schedule.c
tests_test_schedule_LDADD = libsession.a libbase.a -lcmocka

tests_test_records_SOURCES = tests/test_records.c tests/caught.h
tests_test_records_LDADD = libtrain.a libformat.a libbase.a -lcmocka

tests_test_checkpoint_SOURCES = tests/test_checkpoint.c tests/caught.h $(PLACE) $(REFUSE)
tests_test_checkpoint_LDFLAGS = $(REFUSE_LINKED)
tests_test_checkpoint_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_gradcam
tests_test_gradcam_SOURCES = tests/test_gradcam.c tests/caught.h $(PLACE)
tests_test_gradcam_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_identify
tests_test_identify_SOURCES = tests/test_identify.c tests/caught.h tests/rounds.h
tests_test_identify_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_weights
tests_test_weights_SOURCES = tests/test_weights.c tests/caught.h tests/torch_case.c tests/torch_case.h \
	$(PLACE) $(REFUSE)
tests_test_weights_LDFLAGS = $(REFUSE_LINKED)
tests_test_weights_LDADD = $(LDADD) -lcmocka
check_PROGRAMS += tests/test_network_identity
tests_test_network_identity_SOURCES = tests/test_network_identity.c tests/caught.h
tests_test_network_identity_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_progress
tests_test_progress_SOURCES = tests/test_progress.c
tests_test_progress_LDADD = libtrain.a libbase.a -lm -lcmocka

check_PROGRAMS += tests/test_golden
tests_test_golden_SOURCES = tests/test_golden.c tests/caught.h $(DATA_CASE)
tests_test_golden_LDADD = $(LDADD) -lcmocka
EXTRA_DIST += \
	tests/golden/run.ini \
	tests/golden/tiny.ini \
	tests/golden/version-1/checkpoint-last.safetensors \
	tests/golden/version-1/images.pack \
	tests/golden/version-1/metrics.jsonl

check_PROGRAMS += tests/test_results
tests_test_results_SOURCES = tests/test_results.c
tests_test_results_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_whiten
tests_test_whiten_SOURCES = tests/test_whiten.c
tests_test_whiten_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_views
tests_test_views_SOURCES = tests/test_views.c
tests_test_views_LDADD = $(LDADD) -lcmocka
