check_PROGRAMS += tests/test_safetensors tests/test_schedule tests/test_records tests/test_checkpoint

tests_test_safetensors_SOURCES = tests/test_safetensors.c
tests_test_safetensors_LDADD = libtrain.a libbase.a -lcmocka

tests_test_schedule_SOURCES = tests/test_schedule.c
tests_test_schedule_LDADD = libtrain.a libbase.a -lcmocka

tests_test_records_SOURCES = tests/test_records.c
tests_test_records_LDADD = libtrain.a libbase.a -lcmocka

tests_test_checkpoint_SOURCES = tests/test_checkpoint.c tests/caught.h $(PLACE)
tests_test_checkpoint_LDADD = $(LDADD) -lcmocka
