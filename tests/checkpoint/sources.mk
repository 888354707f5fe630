check_PROGRAMS += tests/checkpoint/test_checkpoint tests/checkpoint/test_identify \
	tests/checkpoint/test_weights tests/checkpoint/test_network_identity tests/checkpoint/test_golden

tests_checkpoint_test_checkpoint_SOURCES = tests/checkpoint/test_checkpoint.c tests/support/caught.h \
	$(PLACE) $(REFUSE)
tests_checkpoint_test_checkpoint_LDFLAGS = $(REFUSE_LINKED)
tests_checkpoint_test_checkpoint_LDADD = $(LDADD) -lcmocka

tests_checkpoint_test_identify_SOURCES = tests/checkpoint/test_identify.c tests/support/caught.h \
	tests/support/rounds.h
tests_checkpoint_test_identify_LDADD = $(LDADD) -lcmocka

tests_checkpoint_test_weights_SOURCES = tests/checkpoint/test_weights.c tests/support/caught.h \
	tests/support/rounds.h tests/support/torch_case.c tests/support/torch_case.h $(PLACE) $(REFUSE)
tests_checkpoint_test_weights_LDFLAGS = $(REFUSE_LINKED)
tests_checkpoint_test_weights_LDADD = $(LDADD) -lcmocka

tests_checkpoint_test_network_identity_SOURCES = tests/checkpoint/test_network_identity.c \
	tests/support/caught.h
tests_checkpoint_test_network_identity_LDADD = $(LDADD) -lcmocka

tests_checkpoint_test_golden_SOURCES = tests/checkpoint/test_golden.c tests/support/caught.h $(DATA_CASE)
tests_checkpoint_test_golden_LDADD = $(LDADD) -lcmocka

EXTRA_DIST += \
	tests/golden/run.ini \
	tests/golden/tiny.ini \
	tests/golden/version-1/checkpoint-last.safetensors \
	tests/golden/version-1/images.pack \
	tests/golden/version-1/metrics.jsonl
