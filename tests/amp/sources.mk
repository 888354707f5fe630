check_PROGRAMS += tests/amp/test_scaler

tests_amp_test_scaler_SOURCES = tests/amp/test_scaler.c
tests_amp_test_scaler_LDADD = libamp.a libbase.a -lcmocka
